//! Bounds of the verdict on the sending, as a person names them.

use tracewheel_record::manifest::FidelityBounds;

use crate::exit::Failure;
use crate::time::parse_ns;

/// What `--fidelity` takes; a scenario has the same keys.
const NAMES: [&str; 8] = [
    "lateness_share",
    "lateness_floor",
    "lateness_ceiling",
    "gap_distance_share",
    "gap_distance_floor",
    "gap_distance_ceiling",
    "unfaithful_factor",
    "unsent_share",
];

/// `base` with what `--fidelity` changes in it.
///
/// # Errors
/// Usage, for a name or a value that is none, and for bounds that nothing can be judged by.
pub(crate) fn changed(base: FidelityBounds, pairs: &[String]) -> Result<FidelityBounds, Failure> {
    let mut bounds = base;
    for pair in pairs {
        set(&mut bounds, pair).map_err(|why| Failure::usage(format!("--fidelity `{pair}`: {why}")))?;
    }
    bounds.check().map_err(|why| Failure::usage(format!("--fidelity: {why}")))?;
    Ok(bounds)
}

fn set(bounds: &mut FidelityBounds, pair: &str) -> Result<(), String> {
    let Some((name, value)) = pair.split_once('=') else {
        return Err("write BOUND=VALUE, as in lateness_ceiling=20ms".to_owned());
    };
    let number = || value.trim().parse::<f64>().map_err(|_| format!("`{value}` is no number"));
    match name.trim() {
        "lateness_share" => bounds.lateness_share = number()?,
        "lateness_floor" => bounds.lateness_floor_ns = parse_ns(value)?,
        "lateness_ceiling" => bounds.lateness_ceiling_ns = parse_ns(value)?,
        "gap_distance_share" => bounds.gap_distance_share = number()?,
        "gap_distance_floor" => bounds.gap_distance_floor_ns = parse_ns(value)?,
        "gap_distance_ceiling" => bounds.gap_distance_ceiling_ns = parse_ns(value)?,
        "unfaithful_factor" => bounds.unfaithful_factor = number()?,
        "unsent_share" => bounds.unsent_share = number()?,
        _ => return Err(format!("there is no such bound: {}", NAMES.join(", "))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pairs: &[&str]) -> Result<FidelityBounds, String> {
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        changed(FidelityBounds::default(), &pairs).map_err(|failure| failure.error.to_string())
    }

    #[test]
    fn every_bound_can_be_set_by_its_name() {
        let usual = FidelityBounds::default();
        for name in NAMES {
            let value = if name.ends_with("floor") || name.ends_with("ceiling") { "9ms" } else { "1" };
            assert_ne!(told(&[&format!("{name}={value}")]).unwrap(), usual, "{name}");
        }
        let set = told(&["lateness_ceiling=20ms", "unsent_share=0"]).unwrap();
        assert_eq!(set, FidelityBounds { lateness_ceiling_ns: 20_000_000, unsent_share: 0.0, ..usual });
    }

    #[test]
    fn what_is_no_bound_is_refused_with_what_there_is() {
        for (pair, hint) in [
            ("lateness", "BOUND=VALUE"),
            ("late=1ms", "lateness_floor"),
            ("lateness_floor=soon", "duration"),
            ("unsent_share=none", "number"),
            ("lateness_floor=1h", "ceiling"),
        ] {
            let error = told(&[pair]).unwrap_err();
            assert!(error.contains(hint), "{pair}: {error}");
        }
    }
}
