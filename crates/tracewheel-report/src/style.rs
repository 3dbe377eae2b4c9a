//! How text is to look.

use std::borrow::Cow;

use tracewheel_analysis::comparison::FidelityVerdict;
use tracewheel_analysis::metric::Verdict;

/// How text is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether ANSI colours are wanted.
    pub color: bool,
    /// Columns of the terminal; tables keep within them.
    pub width: u16,
    /// Whether only ASCII may be used: the terminal shows nothing else.
    pub ascii: bool,
    /// What every title carries, so that no table can be quoted without it.
    pub notice: Option<&'static str>,
}

impl Default for Style {
    /// No colours, 100 columns, every sign.
    fn default() -> Self {
        Self { color: false, width: 100, ascii: false, notice: None }
    }
}

impl Style {
    /// Text in signs that the terminal shows. Done before any layout, since some signs become longer.
    pub(crate) fn signs(self, text: &str) -> Cow<'_, str> {
        if !self.ascii || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        for sign in text.chars() {
            match sign {
                '∞' => out.push_str("inf"),
                '…' => out.push_str("..."),
                'µ' => out.push('u'),
                '−' | '–' | '─' => out.push('-'),
                '÷' => out.push('/'),
                '×' => out.push('x'),
                '≥' => out.push_str(">="),
                '≤' => out.push_str("<="),
                sign if sign.is_ascii() => out.push(sign),
                _ => out.push('?'),
            }
        }
        Cow::Owned(out)
    }

    /// Text that stands out.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(text, "1")
    }

    /// Text of a warning.
    pub(crate) fn warning(self, text: &str) -> String {
        self.paint(text, "33")
    }

    /// A verdict in its colour.
    pub(crate) fn verdict(self, verdict: Verdict) -> String {
        self.paint(verdict.as_str(), code(verdict))
    }

    /// A verdict on the sending in its colour.
    pub(crate) fn fidelity(self, verdict: FidelityVerdict) -> String {
        let code = match verdict {
            FidelityVerdict::Faithful => "32",
            FidelityVerdict::Degraded => "33",
            FidelityVerdict::Unfaithful => "31",
        };
        self.paint(verdict.as_str(), code)
    }

    /// A finished table with the verdicts at the ends of its lines in their colours. Painting comes after the layout, so
    /// that no escape sequence is counted as width.
    pub(crate) fn paint_verdicts(self, table: &str) -> String {
        if !self.color {
            return table.to_owned();
        }
        let verdicts = [Verdict::Agree, Verdict::Faster, Verdict::Slower, Verdict::CannotTell];
        let line = |line: &str| {
            let found = verdicts.into_iter().find_map(|v| Some((v, line.strip_suffix(v.as_str())?)));
            match found {
                Some((verdict, rest)) => format!("{rest}{}\n", self.verdict(verdict)),
                None => format!("{line}\n"),
            }
        };
        table.lines().map(line).collect()
    }

    fn paint(self, text: &str, code: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn code(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agree => "32",
        Verdict::Faster => "36",
        Verdict::Slower => "31",
        Verdict::CannotTell => "33",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_painted_only_when_colours_are_wanted() {
        let table = "a  agree\nb  cannot tell\nagree  c\n";
        assert_eq!(Style::default().paint_verdicts(table), table);
        let painted = Style { color: true, ..Style::default() }.paint_verdicts(table);
        assert_eq!(painted, "a  \u{1b}[32magree\u{1b}[0m\nb  \u{1b}[33mcannot tell\u{1b}[0m\nagree  c\n");
    }
}
