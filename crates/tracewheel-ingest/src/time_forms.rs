//! The forms in which a file writes its times, counted: one file may mix several.

use std::collections::BTreeMap;
use std::fmt;

use crate::column_map::Unit;

/// Fraction digits above this number are told as one form.
const MOST_DIGITS: u8 = 10;

/// What stands behind a written date and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextZone {
    None,
    /// `Z`, `UTC`, `GMT`.
    Utc,
    Offset,
}

/// One form of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A date and time with so many fraction digits; `None` where the seconds are missing.
    Text { zone: TextZone, digits: Option<u8> },
    /// A number in a unit.
    Number(Unit),
}

/// Times by their form. There are some forty forms, and one or two in most files.
#[derive(Debug, Default)]
pub(crate) struct TimeForms(Vec<(Form, u64)>);

impl TimeForms {
    pub(crate) fn note(&mut self, form: Form) {
        let form = match form {
            Form::Text { zone, digits } => {
                Form::Text { zone, digits: digits.map(|digits| digits.min(MOST_DIGITS)) }
            }
            number @ Form::Number(_) => number,
        };
        match self.0.iter_mut().find(|(other, _)| *other == form) {
            Some((_, count)) => *count += 1,
            None => self.0.push((form, 1)),
        }
    }

    /// How many times have which form.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.0.iter().map(|(form, count)| (form.to_string(), *count)).collect()
    }

    /// Whether the times differ in more than the number of their fraction digits.
    pub(crate) fn are_mixed(&self) -> bool {
        let kind = |form: &Form| match form {
            Form::Text { zone, .. } => Form::Text { zone: *zone, digits: None },
            Form::Number(unit) => Form::Number(*unit),
        };
        self.0.windows(2).any(|pair| kind(&pair[0].0) != kind(&pair[1].0))
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(unit) => {
                let from = if unit.unix { "since 1970" } else { "from the log's own start" };
                write!(f, "number, {} {from}", unit.scale.name())
            }
            Self::Text { zone, digits } => {
                f.write_str(match zone {
                    TextZone::None => "text without a zone, ",
                    TextZone::Utc => "text with Z, ",
                    TextZone::Offset => "text with an offset, ",
                })?;
                match digits {
                    None => f.write_str("to the minute"),
                    Some(0) => f.write_str("whole seconds"),
                    Some(1) => f.write_str("1 fraction digit"),
                    Some(digits @ ..MOST_DIGITS) => write!(f, "{digits} fraction digits"),
                    Some(_) => f.write_str("10 fraction digits or more"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(zone: TextZone, digits: Option<u8>) -> Form {
        Form::Text { zone, digits }
    }

    #[test]
    fn forms_are_counted_and_named() {
        let mut forms = TimeForms::default();
        for digits in [Some(7), Some(7), Some(0), Some(30), Some(200), Some(1), None] {
            forms.note(text(TextZone::Offset, digits));
        }
        assert!(!forms.are_mixed(), "digits alone are no mixture");
        let counts: Vec<(String, u64)> = forms.counts().into_iter().collect();
        let expected = [
            ("text with an offset, 1 fraction digit", 1),
            ("text with an offset, 10 fraction digits or more", 2),
            ("text with an offset, 7 fraction digits", 2),
            ("text with an offset, to the minute", 1),
            ("text with an offset, whole seconds", 1),
        ];
        assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)));
        forms.note(text(TextZone::None, Some(7)));
        assert!(forms.are_mixed());
    }
}
