//! How progress is shown.

use crate::part::{Part, fitted};
use crate::screen::Screen;

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As a line that is drawn over and erased at the end.
    Line,
    /// As a line of its own every so many nanoseconds, for logs.
    Plain {
        /// Nanoseconds from one line to the next.
        every_ns: i64,
    },
    /// Not at all.
    Silent,
}

/// Shows the progress of one piece of work.
#[derive(Debug)]
pub struct Reporter {
    screen: Screen,
    manner: Manner,
    next_ns: Option<i64>,
}

impl Reporter {
    /// A reporter that has shown nothing yet.
    pub fn new(screen: Screen, manner: Manner) -> Self {
        Self { screen, manner, next_ns: None }
    }

    /// Shows the state at `now_ns`, on any clock that goes forward. Plain lines begin one interval after the first call.
    pub fn tell(&mut self, now_ns: i64, parts: &[Part]) {
        match self.manner {
            Manner::Line => self.screen.show(&fitted(parts, self.screen.width())),
            Manner::Plain { every_ns } => match self.next_ns {
                None => self.next_ns = Some(now_ns.saturating_add(every_ns)),
                Some(next_ns) if now_ns >= next_ns => {
                    self.next_ns = Some(now_ns.saturating_add(every_ns));
                    self.screen.print(format!("progress: {}\n", fitted(parts, usize::MAX)).as_bytes());
                }
                Some(_) => {}
            },
            Manner::Silent => {}
        }
    }

    /// Takes the line away.
    pub fn end(&self) {
        self.screen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::Paper;

    fn told(manner: Manner, columns: usize, times_ns: &[i64]) -> String {
        let paper = Paper::default();
        let mut reporter = Reporter::new(Screen::new(paper.clone(), move || Some(columns)), manner);
        for now_ns in times_ns {
            reporter.tell(*now_ns, &[Part::new(0, format!("at {now_ns}")), Part::new(1, "and more")]);
        }
        reporter.end();
        paper.text()
    }

    #[test]
    fn a_line_is_drawn_over_kept_to_the_width_and_erased() {
        assert_eq!(told(Manner::Line, 10, &[1, 2]), "\r\x1b[2Kat 1\r\x1b[2Kat 2\r\x1b[2K");
    }

    #[test]
    fn plain_lines_come_one_an_interval_whole_and_without_control_codes() {
        let plain = Manner::Plain { every_ns: 10 };
        assert_eq!(told(plain, 10, &[0, 5, 9]), "", "nothing for what is over before the first interval");
        assert_eq!(
            told(plain, 10, &[0, 9, 12, 15, 21, 22]),
            "progress: at 12  and more\nprogress: at 22  and more\n"
        );
    }

    #[test]
    fn a_silent_reporter_writes_no_byte() {
        assert_eq!(told(Manner::Silent, 10, &[0, 100]), "");
    }
}
