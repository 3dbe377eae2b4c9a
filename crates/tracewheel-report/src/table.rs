//! Tables and paragraphs of a given width.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, presets};

use crate::style::Style;

/// A table with a rule under its header; columns whose letter in `align` is `r` lie to the right.
pub(crate) fn table(header: &[&str], align: &str, rows: Vec<Vec<String>>, style: Style) -> String {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(presets::NOTHING.header_separator(rule));
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(style.width);
    table.set_header(header.iter().map(ToString::to_string).collect::<Vec<_>>());
    table.add_rows(rows);
    for (column, letter) in table.column_iter_mut().zip(align.chars()) {
        column.set_padding((0, 1));
        let side = if letter == 'r' { CellAlignment::Right } else { CellAlignment::Left };
        column.set_cell_alignment(side);
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

/// A title over what follows it, with an empty line before it.
pub(crate) fn title(text: &str, style: Style) -> String {
    format!("\n{}\n", style.bold(text))
}

/// Words broken into lines of the style's width; every line but the first is indented.
pub(crate) fn paragraph(text: &str, indent: usize, style: Style) -> String {
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

    const PLAIN: Style = Style { color: false, width: 24 };

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
    fn paragraphs_keep_the_width() {
        let text = paragraph("! aa: one two three four five six seven", 2, PLAIN);
        assert_eq!(text, "! aa: one two three four\n  five six seven\n");
    }

    #[test]
    fn pairs_align_their_values() {
        let style = Style { color: false, width: 30 };
        let text =
            pairs(&[("a", "1".to_owned()), ("long", "some words that need two lines".to_owned())], style);
        assert_eq!(text, "a     1\nlong  some words that need two\n      lines\n");
    }
}
