//! Widths, cuts, tables, sizes and times.

use jiff::Timestamp as Instant;
use sessionlog::codec::ids::Timestamp;
use sessionlog::projections::time::rfc3339_seconds;

/// How many columns of a terminal a character takes.
fn char_width(c: char) -> usize {
    match c {
        // Combining marks of the common scripts.
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5bd}' | '\u{64b}'..='\u{65f}' => 0,
        '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' => 0,
        '\u{fe0e}' | '\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' => 0,
        // East Asian wide and fullwidth, and emoji.
        '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{303e}' | '\u{3041}'..='\u{a4cf}' => 2,
        '\u{a960}'..='\u{a97f}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' => 2,
        '\u{fe30}'..='\u{fe6f}' | '\u{ff01}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}' => 2,
        '\u{1f300}'..='\u{1f64f}' | '\u{1f680}'..='\u{1f6ff}' | '\u{1f900}'..='\u{1f9ff}' => 2,
        '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

/// How many columns of a terminal a text takes, near enough for tables.
#[must_use]
pub fn width(text: &str) -> usize {
    text.chars().map(char_width).fold(0, usize::saturating_add)
}

/// The text, or as much of it as fits into `columns` with `…` behind it. Cut between characters.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut taken = 1_usize;
    for c in text.chars() {
        taken = taken.saturating_add(char_width(c));
        if taken > columns {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the left.
    Left,
    /// At the right: numbers.
    Right,
}

/// Lines of equal columns. The cells must be safe already.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a heading.
    #[must_use]
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The heading and the rows, as lines. Nothing follows the last column's text.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let heading: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let all: Vec<&Vec<String>> = std::iter::once(&heading).chain(&self.rows).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| all.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max())
            .map(Option::unwrap_or_default)
            .collect();
        all.iter().map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, wide), (_, align)) in row.iter().zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let padding = " ".repeat(wide.saturating_sub(width(cell)));
            match align {
                Align::Left => line.extend([cell.as_str(), padding.as_str()]),
                Align::Right => line.extend([padding.as_str(), cell.as_str()]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Bytes as people read them.
#[must_use]
pub fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = 0_usize;
    let mut scale = 1024_u64;
    while bytes / scale >= 1024 && unit < 3 {
        scale = scale.saturating_mul(1024);
        unit = unit.saturating_add(1);
    }
    let tenths = u128::from(bytes).saturating_mul(10) / u128::from(scale);
    format!("{}.{} {}", tenths / 10, tenths % 10, units.get(unit).copied().unwrap_or_default())
}

/// `1 message`, `2 messages`.
#[must_use]
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The system's time.
#[must_use]
pub fn now() -> Timestamp {
    Timestamp(Instant::now().as_microsecond())
}

/// How long ago something was, for a list: exact where that is far away or in the future.
#[must_use]
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.0.saturating_sub(then.0).div_euclid(1_000_000);
    match seconds {
        0..60 => "just now".to_owned(),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        86_400..604_800 => format!("{} d ago", seconds / 86_400),
        // A date is enough for what is a week old.
        604_800.. => rfc3339_seconds(then).chars().take_while(|c| *c != 'T').collect(),
        _ => rfc3339_seconds(then),
    }
}

/// Billionths of a US dollar, as dollars.
#[must_use]
pub fn dollars(nano: u64) -> String {
    let fraction = format!("{:09}", nano % 1_000_000_000);
    let digits = fraction.trim_end_matches('0').len().max(2);
    format!("${}.{}", nano / 1_000_000_000, fraction.get(..digits).unwrap_or(&fraction))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_are_aligned_whatever_is_in_them() {
        let mut table = Table::new(&[("A", Align::Left), ("N", Align::Right), ("T", Align::Left)]);
        table.row(vec!["漢字".into(), "7".into(), "x".into()]);
        table.row(vec!["abcdef".into(), "123".into(), String::new()]);
        assert_eq!(table.lines(), ["A         N  T", "漢字      7  x", "abcdef  123"]);
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16777215.9 TiB");
        assert_eq!(dollars(93_520_000), "$0.09352");
        assert_eq!(dollars(2_000_000_000), "$2.00");
        let now = Timestamp(1_779_939_697_000_000);
        let before = |seconds: i64| ago(Timestamp(now.0 - seconds * 1_000_000), now);
        assert_eq!(before(5), "just now");
        assert_eq!(before(7_300), "2 h ago");
        assert_eq!(before(700_000), "2026-05-20");
        assert_eq!(before(-60), "2026-05-28T03:42:37Z");
        assert_eq!(ago(Timestamp(i64::MIN), Timestamp(i64::MAX)), "0000-01-01");
        assert_eq!(ago(Timestamp(i64::MAX), Timestamp(i64::MIN)), "9999-12-30T22:00:00Z");
    }

    proptest! {
        /// L7: a cut inside of a character was a panic.
        #[test]
        fn l7_a_cut_is_never_inside_a_character(text in "\\PC{0,40}|🙏{0,9}é{0,9}", columns in 0_usize..30) {
            let short = cut(&text, columns);
            prop_assert!(width(&short) <= columns.max(1));
            prop_assert!(short == text || short.ends_with('…'));
        }
    }
}
