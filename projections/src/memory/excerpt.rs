//! A piece of a text around what was looked for.

use std::collections::BTreeSet;
use std::ops::Range;

use super::tokens::{Tokens, tokens_at};

/// How many hits are looked at to choose the best place.
const HITS_MAX: usize = 1000;

/// A piece of a record's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The piece, whole characters of it.
    pub text: String,
    /// Where it begins in the record's text, in characters.
    pub start: usize,
    /// How many characters the record's text has.
    pub of: usize,
    /// Where words that were looked for stand in the piece, in bytes of it: in order, apart from each other.
    pub marks: Vec<Range<usize>>,
}

/// The piece of a text, `most` characters of it at most, with the most different words of `terms` in it; of equals the first.
/// Without any, the beginning.
#[must_use]
pub fn excerpt(text: &str, terms: &[String], most: usize) -> Excerpt {
    let hits = hits(text, terms);
    let mut best = (0, 0..forward(text, 0, most));
    for (nth, hit) in hits.iter().enumerate() {
        let window = window(text, hit.range.start, most);
        let behind = hits.iter().skip(nth).take_while(|other| other.range.end <= window.end);
        let different = behind.map(|other| other.term).collect::<BTreeSet<_>>().len();
        if different > best.0 {
            best = (different, window);
        }
        if different == terms.len() {
            break;
        }
    }
    let Range { start: from, end: to } = best.1;
    let inside = hits.iter().filter(|hit| hit.range.start >= from && hit.range.end <= to);
    let mut marks: Vec<Range<usize>> = Vec::new();
    for hit in inside {
        let range = hit.range.start.saturating_sub(from)..hit.range.end.saturating_sub(from);
        match marks.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => marks.push(range),
        }
    }
    Excerpt {
        text: text.get(from..to).unwrap_or_default().to_owned(),
        start: text.get(..from).unwrap_or_default().chars().count(),
        of: text.chars().count(),
        marks,
    }
}

/// The piece around a hit, in bytes: a quarter of it before the hit, and more where the text ends.
fn window(text: &str, hit: usize, most: usize) -> Range<usize> {
    let from = back(text, hit, most.checked_div(4).unwrap_or(0));
    let to = forward(text, from, most);
    if to == text.len() { back(text, to, most)..to } else { from..to }
}

/// So many characters behind a place, at most to the end.
fn forward(text: &str, from: usize, chars: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    rest.char_indices().nth(chars).map_or(text.len(), |(at, _)| from.saturating_add(at))
}

/// So many characters before a place, at most to the beginning.
fn back(text: &str, from: usize, chars: usize) -> usize {
    let Some(nth) = chars.checked_sub(1) else { return from };
    text.get(..from).unwrap_or_default().char_indices().rev().nth(nth).map_or(0, |(at, _)| at)
}

struct Hit {
    range: Range<usize>,
    /// Which of the words.
    term: usize,
}

fn hits(text: &str, terms: &[String]) -> Vec<Hit> {
    let mut hits = Vec::new();
    if terms.is_empty() {
        return hits;
    }
    tokens_at(text, Tokens::OfText, &mut |token, range| {
        if hits.len() < HITS_MAX
            && let Ok(term) = terms.binary_search_by(|term| term.as_str().cmp(token))
        {
            hits.push(Hit { range, term });
        }
    });
    hits.sort_by_key(|hit| (hit.range.start, hit.range.end));
    hits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn terms(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn around_the_hit() {
        let text = format!("{} needle {}", "hay ".repeat(100), "stack ".repeat(100));
        let found = excerpt(&text, &terms(&["needle"]), 40);
        assert_eq!(found.text.chars().count(), 40);
        assert_eq!(found.marks.first(), Some(&(10..16)));
        assert_eq!(&found.text[10..16], "needle");
        let rest: String = text.chars().skip(found.start).take(40).collect();
        assert_eq!(found.text, rest);
    }

    #[test]
    fn where_most_of_the_words_are() {
        let text = format!("alpha {} alpha beta {}", "x ".repeat(200), "y ".repeat(200));
        let found = excerpt(&text, &terms(&["alpha", "beta"]), 30);
        let marked: Vec<&str> = found.marks.iter().map(|mark| &found.text[mark.clone()]).collect();
        assert_eq!(marked, ["alpha", "beta"]);
    }

    #[test]
    fn without_a_hit_the_beginning() {
        assert_eq!(excerpt("東京都に住む", &[], 3).text, "東京都");
        assert_eq!(excerpt("", &terms(&["x"]), 3), Excerpt::default());
        assert_eq!(excerpt("abc", &terms(&["abc"]), 0).text, "");
        assert_eq!(excerpt("a", &[], 100), Excerpt { text: "a".to_owned(), start: 0, of: 1, marks: vec![] });
    }

    #[test]
    fn a_name_and_its_parts_are_one_mark() {
        let found = excerpt("call foo::bar now", &terms(&["bar", "foo", "foo::bar"]), 100);
        assert_eq!((found.marks.len(), found.marks.first()), (1, Some(&(5..13))));
        assert_eq!(excerpt("東京都", &terms(&["京都"]), 100).marks.first(), Some(&(3..9)));
    }

    proptest! {
        #[test]
        fn whole_characters_of_the_text(text in "\\PC{0,60}", word in "[a-c]{1,2}", most in 0_usize..30) {
            let found = excerpt(&text, &[word], most);
            prop_assert!(found.text.chars().count() <= most);
            let piece: String = text.chars().skip(found.start).take(found.text.chars().count()).collect();
            prop_assert_eq!(&piece, &found.text);
            prop_assert_eq!(found.of, text.chars().count());
            for mark in found.marks {
                prop_assert!(found.text.get(mark).is_some());
            }
        }
    }
}
