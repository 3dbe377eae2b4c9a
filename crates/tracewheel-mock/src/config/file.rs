//! A configuration as a file: read with errors that help, written with every key explained.

use super::{ConfigError, MockConfig};

/// Every key with its default and its meaning.
const COMMENTED: &str = include_str!("default.toml");
/// Edits between a wrong key and the one that is offered in its place, at most.
const MAX_EDITS: usize = 3;

impl MockConfig {
    /// Reads a configuration and checks that such a mock can exist.
    ///
    /// ```
    /// use tracewheel_mock::MockConfig;
    ///
    /// let error = MockConfig::from_toml("seed = 7\n[engine]\nmax_runing = 8\n").expect_err("a slip");
    /// assert_eq!(error.to_string(), "line 3: unknown field `max_runing`: did you mean `max_running`?");
    /// ```
    ///
    /// # Errors
    /// The first thing that can't be, with its line or its key; for an unknown key the nearest one that exists.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| file_error(text, &error))?;
        config.validate()?;
        Ok(config)
    }

    /// The default configuration as a file: every key with its meaning, those without a default commented out.
    pub fn commented_default() -> &'static str {
        COMMENTED
    }
}

fn file_error(text: &str, error: &toml::de::Error) -> ConfigError {
    let line = error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
    ConfigError::File { line, what: helpful(error.message()) }
}

/// The parser's words; a long list of what would have been right becomes the nearest of it.
fn helpful(message: &str) -> String {
    let message = message.trim().replace('\n', ": ");
    let Some((wrong, expected)) = message.split_once(", expected ") else { return message };
    if !wrong.starts_with("unknown ") {
        return message;
    }
    let (names, wanted) = (quoted(expected), quoted(wrong));
    let nearest = wanted
        .first()
        .and_then(|key| names.iter().map(|name| (edits(key, name), name)).min())
        .filter(|(edits, name)| *edits <= MAX_EDITS && *edits < name.len());
    match nearest {
        Some((_, name)) => format!("{wrong}: did you mean `{name}`?"),
        None => format!("{wrong}: there are {}", names.join(", ")),
    }
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Levenshtein's distance: single characters put in, taken out or changed.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        for (a, b, distance) in
            [("", "", 0), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("", "abc", 3), ("same", "same", 0)]
        {
            assert_eq!((edits(a, b), edits(b, a)), (distance, distance), "{a} {b}");
        }
    }

    #[test]
    fn an_unknown_key_is_told_with_its_line_and_the_nearest_one() {
        let told = |text: &str| MockConfig::from_toml(text).unwrap_err().to_string();
        assert_eq!(told("sead = 1"), "line 1: unknown field `sead`: did you mean `seed`?");
        assert_eq!(
            told("# x\n\n[cache]\nenabled = true\ncapacity_block = 4"),
            "line 5: unknown field `capacity_block`: did you mean `capacity_blocks`?"
        );
        assert_eq!(
            told(
                "[[fault]]\nname = \"a\"\nkind = \"reset\"\n[[fault]]\nname = \"b\"\nkind = \"reset\"\nevry = 2"
            ),
            "line 7: unknown field `evry`: did you mean `every`?"
        );
        assert_eq!(
            told("[[fault]]\nname = \"a\"\nkind = \"stal\""),
            "line 3: unknown variant `stal`: did you mean `stall`?"
        );
        let far = told("[tenants]\nxyzzy = 1");
        assert!(far.starts_with("line 2: unknown field `xyzzy`: there are load, start_at,"), "{far}");
    }

    #[test]
    fn other_slips_are_told_with_their_line() {
        let told = |text: &str| MockConfig::from_toml(text).unwrap_err().to_string();
        assert!(told("seed = 1\n[engine]\nmax_running = \"x\"").starts_with("line 3: invalid type: string"));
        assert!(told("seed = 1\nseed = 2").starts_with("line 2: duplicate key"));
        assert!(told("[tenants]\nstart_at = \"25:00\"").starts_with("line 2: `25:00` is no time of day"));
        assert!(told("[[fault]]\nkind = \"reset\"").contains("missing field `name`"));
        assert_eq!(told("[engine]\nqueue_limit = 0"), "engine.queue_limit is 0, but must be at least 1");
    }

    #[test]
    fn the_commented_default_is_the_default_and_explains_every_key() {
        assert_eq!(MockConfig::from_toml(COMMENTED), Ok(MockConfig::default()));
        let every: String = COMMENTED
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line))
            .fold(String::new(), |text, line| text + line + "\n");
        let every = MockConfig::from_toml(&every).unwrap();
        let value = serde_json::to_value(&every).unwrap();
        for (section, keys) in value.as_object().unwrap() {
            assert!(!keys.is_null(), "{section} is not in the commented default");
            for (key, value) in keys.as_object().into_iter().flatten() {
                assert!(!value.is_null(), "{section}.{key} is not in the commented default");
            }
        }
        assert!(!every.fault.is_empty() && !every.engine.decode_levels.is_empty());
    }
}
