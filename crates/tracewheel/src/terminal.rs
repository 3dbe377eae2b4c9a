//! What the terminal on stdout can show.

use std::ffi::OsStr;
use std::io::IsTerminal;

use tracewheel_report::Style;

/// Narrower than this, tables are no longer readable whatever is done.
const LEAST_WIDTH: u16 = 72;

/// How tables are to look: within the terminal's width, and in ASCII where it shows nothing else. What is piped is 100 columns
/// wide and UTF-8, so that it does not depend on where it was made.
pub(crate) fn style(color: bool) -> Style {
    if !std::io::stdout().is_terminal() {
        return Style { color, ..Style::default() };
    }
    let width = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0);
    let text = |name: &str| std::env::var_os(name);
    Style {
        color,
        width: width.unwrap_or(Style::default().width).clamp(LEAST_WIDTH, Style::default().width),
        ascii: is_ascii_only(
            text("TERM").as_deref(),
            [text("LC_ALL").as_deref(), text("LC_CTYPE").as_deref(), text("LANG").as_deref()],
        ),
        notice: None,
    }
}

/// Whether the terminal is dumb, or its locale (the first of the three that is set) names another character set than UTF-8.
/// Without any locale nothing is known, and today's terminals show UTF-8.
fn is_ascii_only(term: Option<&OsStr>, locales: [Option<&OsStr>; 3]) -> bool {
    let dumb = term.is_some_and(|term| term == "dumb");
    let locale = locales.into_iter().flatten().find(|locale| !locale.is_empty());
    let other = locale.is_some_and(|locale| {
        let name = locale.to_string_lossy().to_lowercase();
        !name.contains("utf-8") && !name.contains("utf8")
    });
    dumb || other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascii(term: &str, locales: [&str; 3]) -> bool {
        is_ascii_only(Some(OsStr::new(term)), locales.map(|l| Some(OsStr::new(l))))
    }

    #[test]
    fn the_first_locale_that_is_set_decides() {
        assert!(!ascii("xterm", ["", "", ""]));
        assert!(!ascii("xterm", ["", "", "de_DE.UTF-8"]));
        assert!(!ascii("xterm", ["C.utf8", "POSIX", "C"]));
        assert!(ascii("xterm", ["C", "", "de_DE.UTF-8"]));
        assert!(ascii("xterm", ["", "", "de_DE.ISO-8859-1"]));
    }

    #[test]
    fn a_dumb_terminal_gets_ascii_whatever_its_locale() {
        assert!(ascii("dumb", ["", "", "en_US.UTF-8"]));
        assert!(!is_ascii_only(None, [None; 3]));
    }
}
