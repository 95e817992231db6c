//! Which documents answer a query, by the words they share with it.
//!
//! The seam of the library's search: whoever has better judgement (an index, vectors) gives other scores for the same
//! documents. For a library of some thousand entries this is enough, and it needs no index.

use std::collections::BTreeMap;

use crate::memory::rank::{Corpus, bm25};

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
    let records = number(documents.len());
    // A document counts as a word long at least, so that empty ones don't make the others long.
    let tokens = number(documents.iter().map(Vec::len).sum()).max(records);
    let corpus = Corpus { records, tokens };
    let tables: Vec<BTreeMap<&str, u64>> = documents.iter().map(|words| table(words)).collect();
    let mut scores = vec![0.0; documents.len()];
    for word in &wanted {
        let holders = number(tables.iter().filter(|table| table.contains_key(word.as_str())).count());
        for ((score, table), words) in scores.iter_mut().zip(&tables).zip(documents) {
            let times = table.get(word.as_str()).copied().unwrap_or_default();
            *score += bm25(times, number(words.len()), holders, corpus);
        }
    }
    scores
}

fn table(words: &[String]) -> BTreeMap<&str, u64> {
    let mut table = BTreeMap::new();
    for word in words {
        let times: &mut u64 = table.entry(word.as_str()).or_default();
        *times = times.saturating_add(1);
    }
    table
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
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
