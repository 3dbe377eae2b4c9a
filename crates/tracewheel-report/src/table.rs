//! Tables and paragraphs of a given width.

use crate::style::Style;

/// Columns between two columns of a table; one where it must be narrow.
const GAP: usize = 2;

/// A table with a rule under its header; columns whose letter in `align` is `r` lie to the right. Where it is wider than the
/// style, cells are broken between words, those of the widest columns first; a word is never broken.
pub(crate) fn table(header: &[&str], align: &str, rows: Vec<Vec<String>>, style: Style) -> String {
    let signs = |text: &str| style.signs(text).into_owned();
    let mut lines: Vec<Vec<String>> = vec![header.iter().map(|text| signs(text)).collect()];
    lines.extend(rows.iter().map(|row| row.iter().map(|text| signs(text)).collect()));
    let columns = Columns::fit(&lines, usize::from(style.width));
    let mut out = columns.line(&lines[0], align);
    let whole: usize = columns.widths.iter().sum::<usize>() + columns.gap * header.len().saturating_sub(1);
    out += &if style.ascii { "-" } else { "─" }.repeat(whole);
    out.push('\n');
    for row in &lines[1..] {
        out += &columns.line(row, align);
    }
    out
}

/// The widths of a table's columns.
struct Columns {
    widths: Vec<usize>,
    gap: usize,
}

impl Columns {
    fn fit(rows: &[Vec<String>], width: usize) -> Self {
        let count = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize, of: fn(&str) -> usize| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| of(cell)).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..count).map(|c| widest(c, |cell| cell.chars().count())).collect();
        let longest_word = |cell: &str| cell.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
        let least: Vec<usize> = (0..count).map(|c| widest(c, longest_word)).collect();
        let fits = |widths: &[usize], gap: usize| {
            widths.iter().sum::<usize>() + gap * widths.len().saturating_sub(1) <= width
        };
        while !fits(&widths, GAP) {
            let shrinkable = (0..count).filter(|c| widths[*c] > least[*c]);
            let Some(column) = shrinkable.max_by_key(|c| widths[*c]) else { break };
            widths[column] -= 1;
        }
        let gap = if fits(&widths, GAP) { GAP } else { 1 };
        Self { widths, gap }
    }

    /// A row as one line, or as several where cells are broken.
    fn line(&self, row: &[String], align: &str) -> String {
        let cells: Vec<Vec<String>> =
            row.iter().zip(&self.widths).map(|(cell, width)| broken(cell, *width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = String::new();
        for at in 0..height {
            let mut line = String::new();
            for ((cell, width), letter) in cells.iter().zip(&self.widths).zip(align.chars()) {
                let text = cell.get(at).map_or("", String::as_str);
                let blank = " ".repeat(width.saturating_sub(text.chars().count()));
                let (before, after) =
                    if letter == 'r' { (blank, String::new()) } else { (String::new(), blank) };
                line += &format!("{before}{text}{after}{}", " ".repeat(self.gap));
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

/// A cell in lines of at most `width`, broken between words.
fn broken(cell: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in cell.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// A title over what follows it, with an empty line before it.
pub(crate) fn title(text: &str, style: Style) -> String {
    let text = style.signs(text);
    let Some(notice) = style.notice.map(|notice| format!("[{notice}]")) else {
        return format!("\n{}\n", style.bold(&text));
    };
    let fits = text.chars().count() + 1 + notice.chars().count() <= usize::from(style.width);
    format!("\n{}{}{}\n", style.bold(&text), if fits { ' ' } else { '\n' }, style.warning(&notice))
}

/// Words broken into lines of the style's width; every line but the first is indented.
pub(crate) fn paragraph(text: &str, indent: usize, style: Style) -> String {
    let text = style.signs(text);
    let width = usize::from(style.width).max(indent + 20);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("{}{word}", " ".repeat(indent)));
        } else {
            if !line.trim().is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

/// Names and values below one another, the values aligned.
pub(crate) fn pairs(pairs: &[(&str, String)], style: Style) -> String {
    let widest = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| {
        let gap = " ".repeat(widest - name.chars().count() + 2);
        let narrow = Style { width: style.width.saturating_sub(widest as u16 + 2), ..style };
        let value =
            paragraph(value, 0, narrow).trim_end().replace('\n', &format!("\n{}", " ".repeat(widest + 2)));
        format!("{name}{gap}{value}\n")
    };
    pairs.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { color: false, width: 24, ascii: false, notice: None };

    #[test]
    fn numbers_lie_to_the_right_and_lines_have_no_tail() {
        let rows = vec![vec!["a".to_owned(), "5".to_owned()], vec!["bcd".to_owned(), "1,000".to_owned()]];
        let text = table(&["name", "n"], "lr", rows, PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "name      n");
        assert!(lines[1].chars().all(|c| c == '─'));
        assert_eq!(lines[2..], ["a         5", "bcd   1,000"]);
    }

    #[test]
    fn cells_are_broken_between_words_where_the_table_is_too_wide() {
        let rows = vec![vec!["ttft".to_owned(), "37.1 ms [2.0, 65.1]".to_owned(), "agree".to_owned()]];
        let text = table(&["", "replay", ""], "lrl", rows, PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "           replay");
        assert_eq!(lines[1], "─".repeat(24));
        assert_eq!(lines[2..], ["ttft      37.1 ms  agree", "      [2.0, 65.1]"]);
    }

    #[test]
    fn paragraphs_keep_the_width() {
        let text = paragraph("! aa: one two three four five six seven", 2, PLAIN);
        assert_eq!(text, "! aa: one two three four\n  five six seven\n");
    }

    #[test]
    fn pairs_align_their_values() {
        let style = Style { width: 30, ..Style::default() };
        let text =
            pairs(&[("a", "1".to_owned()), ("long", "some words that need two lines".to_owned())], style);
        assert_eq!(text, "a     1\nlong  some words that need two\n      lines\n");
    }
}
