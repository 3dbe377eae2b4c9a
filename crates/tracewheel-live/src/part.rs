//! A line made of parts, the least needed of which give way on a narrow terminal.

/// A piece of a progress line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What gives way first: the part of the highest rank. Rank 0 stays to the end.
    pub rank: u8,
    /// The words.
    pub text: String,
}

impl Part {
    /// A part of this rank.
    pub fn new(rank: u8, text: impl Into<String>) -> Self {
        Self { rank, text: text.into() }
    }
}

const BETWEEN: &str = "  ";

/// The parts in their order, two spaces apart, without those that do not fit into `width` columns. When the last one
/// alone is too long, it is cut.
pub fn fitted(parts: &[Part], width: usize) -> String {
    let mut kept: Vec<&Part> = parts.iter().filter(|part| !part.text.is_empty()).collect();
    while kept.len() > 1 && joined(&kept).chars().count() > width {
        let last = kept.iter().enumerate().max_by_key(|(position, part)| (part.rank, *position));
        let Some((position, _)) = last else { break };
        kept.remove(position);
    }
    joined(&kept).chars().take(width).collect()
}

fn joined(parts: &[&Part]) -> String {
    parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(BETWEEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_the_highest_rank_give_way_first_and_the_order_stays() {
        let parts = [Part::new(1, "one"), Part::new(3, "three"), Part::new(0, "zero"), Part::new(2, "two")];
        assert_eq!(fitted(&parts, 80), "one  three  zero  two");
        assert_eq!(fitted(&parts, 20), "one  zero  two");
        assert_eq!(fitted(&parts, 13), "one  zero");
        assert_eq!(fitted(&parts, 4), "zero");
        assert_eq!(fitted(&parts, 2), "ze", "nothing is ever wider than the terminal");
    }

    #[test]
    fn a_width_counts_characters_and_empty_parts_take_none() {
        assert_eq!(fitted(&[Part::new(0, "85 µs"), Part::new(1, ""), Part::new(2, "é")], 8), "85 µs  é");
    }
}
