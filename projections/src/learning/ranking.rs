//! Which documents answer a query, by the words they share with it.
//!
//! The seam of the library's search: whoever has better judgement (an index, vectors) gives other scores for the same
//! documents. For a library of some thousand entries this is enough, and it needs no index.

use std::collections::BTreeMap;

/// How fast a word's repetition stops to count, and how much a long document is held back: the usual figures.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The words of a text, in lower case: runs of letters and digits. A character of a script that is written without spaces is
/// a word by itself.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    for c in text.chars() {
        if is_alone(c) {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            words.push(c.to_string());
        } else if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        } else if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

fn is_alone(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}')
}

/// A score for each document: BM25 over the words. 0: they share none.
pub(super) fn scores(query: &str, documents: &[Vec<String>]) -> Vec<f64> {
    let mut wanted = words(query);
    wanted.sort();
    wanted.dedup();
    let count = real(documents.len());
    let total: usize = documents.iter().map(Vec::len).sum();
    let mean = (real(total) / count.max(1.0)).max(1.0);
    let tables: Vec<BTreeMap<&str, usize>> = documents.iter().map(|words| table(words)).collect();
    let mut scores = vec![0.0; documents.len()];
    for word in &wanted {
        let holders = real(tables.iter().filter(|table| table.contains_key(word.as_str())).count());
        let rare = (1.0 + (count - holders + 0.5) / (holders + 0.5)).ln();
        for ((score, table), words) in scores.iter_mut().zip(&tables).zip(documents) {
            let times = real(table.get(word.as_str()).copied().unwrap_or_default());
            let length = 1.0 - B + B * real(words.len()) / mean;
            *score += rare * times * (K1 + 1.0) / (times + K1 * length);
        }
    }
    scores
}

fn table(words: &[String]) -> BTreeMap<&str, usize> {
    let mut table = BTreeMap::new();
    for word in words {
        let times: &mut usize = table.entry(word.as_str()).or_default();
        *times = times.saturating_add(1);
    }
    table
}

fn real(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        assert_eq!(words("Run `cargo-test` 2×, ÄRGER!"), ["run", "cargo", "test", "2", "ärger"]);
        assert_eq!(words("テスト x"), ["テ", "ス", "ト", "x"]);
        assert!(words(" -- ").is_empty());
    }

    #[test]
    fn what_shares_rarer_words_comes_first() {
        let documents: Vec<_> = ["the tests of the parser", "the parser", "the weather"].map(words).into();
        let scores = scores("parser tests", &documents);
        assert!(scores[0] > scores[1] && scores[1] > scores[2]);
        assert!(scores[2].abs() < 1e-9);
        assert!(super::scores("x", &[]).is_empty());
    }
}
