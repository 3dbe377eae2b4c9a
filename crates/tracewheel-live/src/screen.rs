//! A stream with a status line at its end.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Columns where the terminal does not say how many it has.
const USUAL_COLUMNS: usize = 80;

/// Goes to the line's start and erases it.
const ERASE: &[u8] = b"\r\x1b[2K";

/// Asks how many columns the terminal has now.
type Columns = Box<dyn Fn() -> Option<usize> + Send>;

/// A stream on which a status line may stand below all that is printed. Clones share one stream and one line.
///
/// A stream that can no longer be written is no error here: the work goes on without an audience.
#[derive(Clone)]
pub struct Screen(Arc<Mutex<Shown>>);

struct Shown {
    out: Box<dyn Write + Send>,
    columns: Columns,
    /// What stands on the last line; empty when nothing does.
    line: String,
}

impl Screen {
    /// Takes the stream; `columns` is asked before each drawing, so that a resized window is followed.
    pub fn new(
        out: impl Write + Send + 'static,
        columns: impl Fn() -> Option<usize> + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new(Shown {
            out: Box::new(out),
            columns: Box::new(columns),
            line: String::new(),
        })))
    }

    /// Prints whole lines above the status line.
    pub fn print(&self, text: &[u8]) {
        let mut shown = self.shown();
        let line = std::mem::take(&mut shown.line);
        let erase: &[u8] = if line.is_empty() { b"" } else { ERASE };
        // The line that was erased is drawn again in the same write, so that it does not flicker.
        let _gone =
            shown.out.write_all(&[erase, text, line.as_bytes()].concat()).and_then(|()| shown.out.flush());
        shown.line = line;
    }

    /// Columns that a status line may take: one less than there are, so that the cursor does not wrap.
    pub fn width(&self) -> usize {
        (self.shown().columns)().unwrap_or(USUAL_COLUMNS).saturating_sub(1)
    }

    /// Puts `line` in the place of the status line. Control characters are left out; the caller keeps to
    /// [`width`](Self::width).
    pub fn show(&self, line: &str) {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        let mut shown = self.shown();
        if shown.line != line {
            let _gone =
                shown.out.write_all(&[ERASE, line.as_bytes()].concat()).and_then(|()| shown.out.flush());
            shown.line = line;
        }
    }

    /// Erases the status line.
    pub fn clear(&self) {
        let mut shown = self.shown();
        if !std::mem::take(&mut shown.line).is_empty() {
            let _gone = shown.out.write_all(ERASE).and_then(|()| shown.out.flush());
        }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs are written here: each write is one or more whole lines.
impl Write for Screen {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.print(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("line", &self.shown().line).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A stream whose bytes the test keeps.
    #[derive(Clone, Default)]
    pub(crate) struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Paper {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_printed_stands_above_the_line_and_the_line_is_erased_at_the_end() {
        let paper = Paper::default();
        let screen = Screen::new(paper.clone(), || None);
        screen.print(b"first\n");
        screen.show("half");
        screen.print(b"second\n");
        screen.show("half");
        screen.show("all");
        screen.clear();
        screen.clear();
        screen.print(b"third\n");
        assert_eq!(paper.text(), "first\n\r\x1b[2Khalf\r\x1b[2Ksecond\nhalf\r\x1b[2Kall\r\x1b[2Kthird\n");
    }

    #[test]
    fn a_line_keeps_off_the_last_column_and_holds_no_control_characters() {
        let paper = Paper::default();
        let screen = Screen::new(paper.clone(), || Some(40));
        assert_eq!(screen.width(), 39);
        screen.show("a\x1b[31mb\n");
        assert_eq!(paper.text(), "\r\x1b[2Ka[31mb");
        assert_eq!(Screen::new(Paper::default(), || None).width(), 79);
    }
}
