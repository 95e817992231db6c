//! One spelling for letters that people take for the same: case, accents, full width.

/// Adds a character to `out` as it is searched: in lower case, without its accents, in its usual width.
pub(super) fn fold_into(c: char, out: &mut String) {
    if c.is_ascii() {
        out.push(c.to_ascii_lowercase());
        return;
    }
    for lower in narrow(c).to_lowercase() {
        match base(lower) {
            Folded::Same => out.push(lower),
            Folded::Nothing => {}
            Folded::As(text) => out.push_str(text),
        }
    }
}

/// Full-width forms of ASCII, as Chinese and Japanese text has them.
fn narrow(c: char) -> char {
    match u32::from(c).checked_sub(0xFEE0) {
        Some(ascii) if (0x21..=0x7E).contains(&ascii) => char::from_u32(ascii).unwrap_or(c),
        _ => c,
    }
}

enum Folded {
    Same,
    Nothing,
    As(&'static str),
}

/// Whether a character only marks the one before it: an accent of a decomposed letter.
pub(super) fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36F}' | '\u{1AB0}'..='\u{1AFF}' | '\u{1DC0}'..='\u{1DFF}' | '\u{FE00}'..='\u{FE0F}')
}

/// Letters of Latin and Greek scripts with an accent, by the letter without.
const BASES: &[(&str, &str)] = &[
    ("àáâãäåāăąǎǻȁȃạảấầẩẫậắằẳẵặ", "a"),
    ("çćĉċč", "c"),
    ("ďđð", "d"),
    ("èéêëēĕėęěȅȇẹẻẽếềểễệ", "e"),
    ("ĝğġģǧ", "g"),
    ("ĥħ", "h"),
    ("ìíîïĩīĭįıǐỉị", "i"),
    ("ĵ", "j"),
    ("ķǩ", "k"),
    ("ĺļľŀł", "l"),
    ("ñńņňŉ", "n"),
    ("òóôõöøōŏőǒǿơọỏốồổỗộớờởỡợ", "o"),
    ("ŕŗř", "r"),
    ("śŝşšșſ", "s"),
    ("ţťŧț", "t"),
    ("ùúûüũūŭůűųǔưụủứừửữự", "u"),
    ("ŵ", "w"),
    ("ýÿŷỳỵỷỹ", "y"),
    ("źżž", "z"),
    ("ß", "ss"),
    ("æǽ", "ae"),
    ("œ", "oe"),
    ("þ", "th"),
    ("ά", "α"),
    ("έ", "ε"),
    ("ή", "η"),
    ("ίϊΐ", "ι"),
    ("ό", "ο"),
    ("ύϋΰ", "υ"),
    ("ώ", "ω"),
    ("ς", "σ"),
    ("ё", "е"),
];

fn base(lower: char) -> Folded {
    if is_mark(lower) {
        return Folded::Nothing;
    }
    // Nothing above has a base here, and most of what is not ASCII is above.
    if lower > '\u{1EFF}' || ('\u{460}'..'\u{1E00}').contains(&lower) {
        return Folded::Same;
    }
    let found = BASES.iter().find(|(letters, _)| letters.contains(lower));
    found.map_or(Folded::Same, |(_, base)| Folded::As(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> String {
        let mut out = String::new();
        text.chars().for_each(|c| fold_into(c, &mut out));
        out
    }

    #[test]
    fn what_reads_the_same_is_the_same() {
        for (text, expected) in [
            ("Ünïcödé", "unicode"),
            ("u\u{308}ber", "uber"),
            ("STRASSE Straße", "strasse strasse"),
            ("İstanbul", "istanbul"),
            ("ΟΔΥΣΣΕΎΣ", "οδυσσευσ"),
            ("Ёлка", "елка"),
            ("Ｆｕｌｌ１２", "full12"),
            ("日本語", "日本語"),
            ("Đặng", "dang"),
        ] {
            assert_eq!(folded(text), expected);
        }
    }

    #[test]
    fn a_base_has_no_base() {
        for (letters, base_of) in BASES {
            for letter in letters.chars() {
                let mut twice = String::new();
                folded(&letter.to_string()).chars().for_each(|c| fold_into(c, &mut twice));
                assert_eq!(&twice, base_of, "{letter}");
            }
        }
    }
}
