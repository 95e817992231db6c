//! Texts as words: of prose, of code, of scripts without spaces.

use std::ops::Range;

use super::fold_case::{fold_into, is_mark};

/// The longest word that is told from others by all of it, in characters. A longer one (a key, a URL, encoded bytes) is known by
/// its parts, and a part by its beginning.
const WORD_CHARS: usize = 128;

/// For what a text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// To be found: a Chinese or Japanese text by its single characters too.
    OfText,
    /// To find: by pairs of such characters where there are pairs.
    OfQuery,
}

/// Gives the words of a text to `take`, in order. A word never has white space in it.
///
/// - Words are compared without case, accents or width.
/// - What is joined by `_ . : / \ - @ '` or by case is one word, each of its parts (of a path, a qualified name, a file's name)
///   is, and each word in them: `src/memory/FtsIndex.rs` gives itself, `src`, `memory`, `ftsindex.rs`, `ftsindex`, `fts`,
///   `index`, `rs`.
/// - Han, Kana and Hangul, which are written without spaces or with endings, give each pair of neighbours, and each single
///   one of a [text](Tokens::OfText).
pub fn tokens(text: &str, mode: Tokens, take: &mut dyn FnMut(&str)) {
    tokens_at(text, mode, &mut |token, _| take(token));
}

/// As [`tokens`], with where each word stands in the text, in bytes.
pub(super) fn tokens_at(text: &str, mode: Tokens, take: &mut dyn FnMut(&str, Range<usize>)) {
    let mut cutter = Cutter { mode, take, folded: String::new() };
    let mut at = 0;
    while let Some(start) = text.get(at..).and_then(|rest| rest.find(is_word_char)) {
        at = at.saturating_add(start);
        let rest = text.get(at..).unwrap_or_default();
        let len = if rest.starts_with(is_ideographic) {
            let len = rest.find(|c| !is_ideographic(c)).unwrap_or(rest.len());
            cutter.ideographs(at, rest.get(..len).unwrap_or_default());
            len
        } else {
            let len = compound_end(rest);
            cutter.compound(at, rest.get(..len).unwrap_or_default());
            len
        };
        at = at.saturating_add(len.max(1));
    }
}

fn is_word_char(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Characters of scripts in which a word's end is not seen.
fn is_ideographic(c: char) -> bool {
    matches!(c,
        '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{30FF}' | '\u{31F0}'..='\u{31FF}' | '\u{3400}'..='\u{4DBF}'
        | '\u{4E00}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}' | '\u{F900}'..='\u{FAFF}' | '\u{FF66}'..='\u{FF9F}'
        | '\u{20000}'..='\u{3FFFF}')
        && c.is_alphanumeric()
}

fn is_joiner(c: char) -> bool {
    matches!(c, '.' | ':' | '/' | '\\' | '-' | '@' | '\'')
}

/// Where the compound ends that a text begins with: words joined by one or two joiners.
fn compound_end(text: &str) -> usize {
    let mut end = 0;
    let mut joiners = 0;
    for (at, c) in text.char_indices() {
        if (is_word_char(c) && !is_ideographic(c)) || is_mark(c) {
            joiners = 0;
            end = at.saturating_add(c.len_utf8());
        } else if is_joiner(c) && joiners < 2 {
            joiners += 1;
        } else {
            break;
        }
    }
    end
}

struct Cutter<'t> {
    mode: Tokens,
    take: &'t mut dyn FnMut(&str, Range<usize>),
    folded: String,
}

impl Cutter<'_> {
    /// Gives one word, if it is not too long to be one.
    fn give(&mut self, at: usize, word: &str, long: Long) {
        // Nothing is left of some: a mark without its letter.
        self.folded.clear();
        word.chars().take(WORD_CHARS.saturating_add(1)).for_each(|c| fold_into(c, &mut self.folded));
        if let Some((end, _)) = self.folded.char_indices().nth(WORD_CHARS) {
            match long {
                Long::Skip => return,
                Long::Cut => self.folded.truncate(end),
            }
        }
        if self.folded.chars().any(char::is_alphanumeric) {
            (self.take)(&self.folded, at..at.saturating_add(word.len()));
        }
    }

    fn ideographs(&mut self, start: usize, run: &str) {
        let mut chars = run.char_indices().peekable();
        let is_one = run.chars().nth(1).is_none();
        while let Some((at, c)) = chars.next() {
            let (from, end) = (start.saturating_add(at), at.saturating_add(c.len_utf8()));
            if self.mode == Tokens::OfText || is_one {
                self.give(from, run.get(at..end).unwrap_or_default(), Long::Skip);
            }
            if let Some((next, second)) = chars.peek() {
                let end = next.saturating_add(second.len_utf8());
                self.give(from, run.get(at..end).unwrap_or_default(), Long::Skip);
            }
        }
    }

    fn compound(&mut self, start: usize, whole: &str) {
        let is_path = |c| matches!(c, '/' | '\\' | ':' | '@');
        if whole.contains(is_joiner) {
            self.give(start, whole, Long::Skip);
        }
        for (at, segment) in pieces(start, whole, is_path) {
            if segment.len() < whole.len() && segment.contains(is_joiner) {
                self.give(at, segment, Long::Skip);
            }
            pieces(at, segment, is_joiner).for_each(|(at, chunk)| self.chunk(at, chunk));
        }
    }

    /// A name of a programming language, or a plain word.
    fn chunk(&mut self, start: usize, chunk: &str) {
        self.give(start, chunk, Long::Cut);
        for (at, name) in pieces(start, chunk, |c| c == '_') {
            if name.len() < chunk.len() {
                self.give(at, name, Long::Cut);
            }
            let (mut from, humps) = (0, humps(name));
            if humps.is_empty() {
                continue;
            }
            for end in humps.into_iter().chain([name.len()]) {
                let hump = name.get(from..end).unwrap_or_default();
                self.give(at.saturating_add(from), hump, Long::Cut);
                from = end;
            }
        }
    }
}

/// What stands between separators of one byte each, with its place; nothing is no piece.
fn pieces(
    start: usize,
    text: &str,
    is_separator: impl Fn(char) -> bool,
) -> impl Iterator<Item = (usize, &str)> {
    let mut at = start;
    let placed = text.split(is_separator).map(move |piece| {
        let from = at;
        at = at.saturating_add(piece.len()).saturating_add(1);
        (from, piece)
    });
    placed.filter(|(_, piece)| !piece.is_empty())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Long {
    Skip,
    Cut,
}

/// Where a name in camel case begins a new word, but for its first: `parseHTTPHeader` at `HTTP` and `Header`.
fn humps(name: &str) -> Vec<usize> {
    if name.is_ascii() && !name.bytes().skip(1).any(|byte| byte.is_ascii_uppercase()) {
        return Vec::new();
    }
    let chars: Vec<(usize, char)> = name.char_indices().collect();
    let mut humps = Vec::new();
    for window in chars.windows(2) {
        let [(_, before), (at, here)] = window else { continue };
        if here.is_uppercase() && !before.is_uppercase() {
            humps.push(*at);
        }
    }
    for window in chars.windows(3) {
        let [(_, before), (at, here), (_, behind)] = window else { continue };
        if before.is_uppercase() && here.is_uppercase() && behind.is_lowercase() {
            humps.push(*at);
        }
    }
    humps.sort_unstable();
    humps.dedup();
    humps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(text: &str) -> Vec<String> {
        cut_for(text, Tokens::OfText)
    }

    fn cut_for(text: &str, mode: Tokens) -> Vec<String> {
        let mut found = Vec::new();
        tokens(text, mode, &mut |token| found.push(token.to_owned()));
        found
    }

    #[test]
    fn prose() {
        assert_eq!(cut("The login test FAILS, again!"), ["the", "login", "test", "fails", "again"]);
        assert_eq!(cut("Café, cafe\u{301} und Straße."), ["cafe", "cafe", "und", "strasse"]);
        assert_eq!(cut("don't"), ["don't", "don", "t"]);
        assert_eq!(cut("  \n\t --- ___ … 🦀"), Vec::<String>::new());
        assert_eq!(cut("end."), ["end"]);
        assert_eq!(cut("Привет мир"), ["привет", "мир"]);
    }

    #[test]
    fn names_of_code_whole_and_in_part() {
        assert_eq!(cut("snake_case_name"), ["snake_case_name", "snake", "case", "name"]);
        assert_eq!(cut("parseHTTPHeader"), ["parsehttpheader", "parse", "http", "header"]);
        assert_eq!(cut("_private"), ["_private", "private"]);
        assert_eq!(cut("foo::bar"), ["foo::bar", "foo", "bar"]);
        assert_eq!(cut("SHA256 utf8"), ["sha256", "utf8"]);
        assert_eq!(cut("max-width: 5"), ["max-width", "max", "width", "5"]);
        assert_eq!(cut("MAX_LEN"), ["max_len", "max", "len"]);
        let path =
            ["src/memory/ftsindex.rs", "src", "memory", "ftsindex.rs", "ftsindex", "fts", "index", "rs"];
        assert_eq!(cut("src/memory/FtsIndex.rs"), path);
        assert_eq!(cut("/etc/hosts:"), ["etc/hosts", "etc", "hosts"]);
        assert_eq!(cut("C:\\x\\y"), ["c:\\x\\y", "c", "x", "y"]);
    }

    #[test]
    fn scripts_without_spaces() {
        assert_eq!(cut("東京都"), ["東", "東京", "京", "京都", "都"]);
        assert_eq!(cut_for("東京都", Tokens::OfQuery), ["東京", "京都"]);
        assert_eq!(cut_for("東", Tokens::OfQuery), ["東"]);
        assert_eq!(cut_for("APIキー", Tokens::OfQuery), ["api", "キー"]);
        assert_eq!(cut_for("검색", Tokens::OfQuery), ["검색"]);
        assert_eq!(cut("日，本"), ["日", "本"], "a comma of full width parts words");
    }

    #[test]
    fn what_is_too_long_is_known_by_its_parts() {
        let long = "x".repeat(1000);
        assert_eq!(cut(&long), ["x".repeat(WORD_CHARS)]);
        assert_eq!(cut(&format!("{long}/y")), ["x".repeat(WORD_CHARS), "y".to_owned()]);
        let whole = format!("{}.b", "a".repeat(WORD_CHARS - 2));
        assert_eq!(cut(&whole)[0], whole);
    }

    proptest! {
        #[test]
        fn a_word_is_found_by_itself_and_has_no_space(text in "\\PC{0,40}") {
            for word in cut(&text) {
                prop_assert!(!word.contains(char::is_whitespace), "{word:?}");
                prop_assert!(word.chars().count() <= WORD_CHARS);
            }
            let all = cut(&text);
            for word in cut_for(&text, Tokens::OfQuery) {
                prop_assert!(all.contains(&word), "{word:?} is not in {all:?}");
            }
        }

        #[test]
        fn a_word_stands_where_it_is_said_to(text in "\\PC{0,40}") {
            let mut wrong = None;
            tokens_at(&text, Tokens::OfText, &mut |word, range| {
                let mut folded = String::new();
                text[range].chars().for_each(|c| fold_into(c, &mut folded));
                if folded != word {
                    wrong = Some((folded, word.to_owned()));
                }
            });
            prop_assert_eq!(wrong, None);
        }

        #[test]
        fn two_texts_have_the_words_of_both(a in "[ -~]{0,30}", b in "[ -~]{0,30}") {
            let both = cut(&format!("{a} {b}"));
            let each: Vec<String> = cut(&a).into_iter().chain(cut(&b)).collect();
            prop_assert_eq!(both, each);
        }
    }
}
