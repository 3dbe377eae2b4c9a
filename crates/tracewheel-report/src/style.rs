//! How text is to look.

/// How text is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether ANSI colours are wanted.
    pub color: bool,
    /// Columns of the terminal; tables keep within them.
    pub width: u16,
}

impl Default for Style {
    /// No colours, 100 columns.
    fn default() -> Self {
        Self { color: false, width: 100 }
    }
}
