//! Scores and orders: the same whoever found the records.

use std::cmp::Ordering;

use sessionlog_codec::ids::Timestamp;

use super::query::{MemoryQuery, MemorySort, Recency};
use super::record::RecordId;

const K1: f64 = 1.2;
const B: f64 = 0.75;
/// What is added to a rank before it is divided by.
const RRF: f64 = 60.0;
/// How many of the nearest vectors are fused with the text's ranks: a fixed number, or what a page needs many times over.
const VECTORS_MIN: usize = 100;
const VECTORS_PER_HIT: usize = 8;
const VECTORS_MAX: usize = 5000;

/// What is known about all records of a workspace's memory, whatever a query asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Corpus {
    /// How many there are.
    pub records: u64,
    /// Words of all of them.
    pub tokens: u64,
}

/// How much one word of a query says for a record that holds it `frequency` times and is `len` words long, where `holders`
/// records hold it. Never negative; see the [module](super) for the formula.
#[must_use]
pub fn bm25(frequency: u64, len: u64, holders: u64, corpus: Corpus) -> f64 {
    let (records, holders) = (float(corpus.records), float(holders));
    let rarity = (1.0 + (records - holders + 0.5).max(0.0) / (holders + 0.5)).ln();
    let average = float(corpus.tokens) / records.max(1.0);
    let (frequency, length) = (float(frequency), float(len) / average.max(f64::MIN_POSITIVE));
    rarity * frequency * (K1 + 1.0) / (frequency + K1 * (1.0 - B + B * length))
}

/// A number as one that can be divided. Exact up to 2^53.
fn float(number: u64) -> f64 {
    let low = u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    let high = u32::try_from(number >> 32).unwrap_or(u32::MAX);
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

/// The cosine of the angle between two vectors of one length, -1 to 1; `None` if one of them has no direction or they are of
/// different lengths.
#[must_use]
pub fn cosine(a: &[f32], b: &[f32]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let (mut product, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (f64::from(*x), f64::from(*y));
        product += x * y;
        of_a += x * x;
        of_b += y * y;
    }
    let lengths = of_a.sqrt() * of_b.sqrt();
    (lengths > 0.0 && lengths.is_finite()).then(|| (product / lengths).clamp(-1.0, 1.0))
}

/// A record that a search found, before it is ranked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Its name.
    pub id: RecordId,
    /// When it happened.
    pub at: Timestamp,
    /// Its score by text; `None`: no word of the query is in it.
    pub text: Option<f64>,
    /// Its cosine with the query's vector; `None`: it has no vector of that model and length.
    pub vector: Option<f64>,
}

/// A record in its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// Its name.
    pub id: RecordId,
    /// When it happened.
    pub at: Timestamp,
    /// What it was ranked by; 0 where only time counts.
    pub score: f64,
    /// Its rank by text alone, from 1.
    pub text_rank: Option<u32>,
    /// Its rank by vector alone, from 1.
    pub vector_rank: Option<u32>,
}

/// All records that a query finds, in its order. `found` are those that its filter takes.
#[must_use]
pub fn rank(query: &MemoryQuery, found: &[Found], now: Timestamp) -> Vec<Ranked> {
    let by_text = !query.text.trim().is_empty();
    let texts = ranks(found, by_text, |found| found.text);
    let vectors = ranks(found, query.vector.is_some(), |found| found.vector);
    let page = query.offset.saturating_add(query.limit).saturating_mul(VECTORS_PER_HIT);
    let near = if by_text { page.clamp(VECTORS_MIN, VECTORS_MAX) } else { usize::MAX };
    let near = u32::try_from(near).unwrap_or(u32::MAX);
    let all = !by_text && query.vector.is_none();
    let mut ranked: Vec<Ranked> = found
        .iter()
        .zip(texts)
        .zip(vectors)
        .filter_map(|((found, text_rank), vector_rank)| {
            let vector_rank = vector_rank.filter(|rank| *rank <= near);
            if !all && text_rank.is_none() && vector_rank.is_none() {
                return None;
            }
            let score = score(query, found, text_rank, vector_rank);
            let score = score * query.recency.map_or(1.0, |recency| boost(recency, found.at, now));
            Some(Ranked { id: found.id, at: found.at, score, text_rank, vector_rank })
        })
        .collect();
    ranked.sort_by(|a, b| match query.sort {
        // Nothing but time tells records apart that nothing was asked of.
        MemorySort::Relevance if all => newer_first(a, b),
        MemorySort::Relevance => b.score.total_cmp(&a.score).then_with(|| newer_first(a, b)),
        MemorySort::Newest => newer_first(a, b),
        MemorySort::Oldest => a.at.cmp(&b.at).then_with(|| a.id.cmp(&b.id)),
    });
    ranked
}

fn newer_first(a: &Ranked, b: &Ranked) -> Ordering {
    newer((a.at, a.id), (b.at, b.id))
}

/// The newer one first: by time, of one time by the place in the session.
fn newer((a_at, a): (Timestamp, RecordId), (b_at, b): (Timestamp, RecordId)) -> Ordering {
    let by_place = || (b.position, b.part).cmp(&(a.position, a.part));
    b_at.cmp(&a_at).then_with(|| a.session.cmp(&b.session)).then_with(by_place)
}

/// The rank of each by one score, the best 1.
fn ranks(found: &[Found], asked: bool, score: impl Fn(&Found) -> Option<f64>) -> Vec<Option<u32>> {
    let mut ranks = vec![None; found.len()];
    if !asked {
        return ranks;
    }
    let scored = found.iter().zip(&mut ranks).filter_map(|(found, rank)| Some((score(found)?, found, rank)));
    let mut scored: Vec<_> = scored.collect();
    scored.sort_by(|(a, of_a, _), (b, of_b, _)| {
        b.total_cmp(a).then_with(|| newer((of_a.at, of_a.id), (of_b.at, of_b.id)))
    });
    scored.into_iter().zip(1..).for_each(|((_, _, rank), nth)| *rank = Some(nth));
    ranks
}

fn score(query: &MemoryQuery, found: &Found, text: Option<u32>, vector: Option<u32>) -> f64 {
    match (&query.vector, query.text.trim().is_empty()) {
        (None, _) => found.text.unwrap_or(0.0),
        (Some(_), true) => found.vector.map_or(0.0, |cosine| f64::midpoint(cosine, 1.0)),
        (Some(asked), false) => {
            let share = |rank: Option<u32>| rank.map_or(0.0, |rank| 1.0 / (RRF + f64::from(rank)));
            share(text) + asked.weight * share(vector)
        }
    }
}

/// What recency makes of a score. A record of the future is of this moment.
fn boost(recency: Recency, at: Timestamp, now: Timestamp) -> f64 {
    let micros = u64::try_from(now.0.saturating_sub(at.0)).unwrap_or(0);
    let (age, half_life) = (float(micros) / 1e6, recency.half_life.as_secs_f64());
    1.0 + recency.weight * (-std::f64::consts::LN_2 * age / half_life).exp()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use sessionlog_codec::ids::{Position, SessionId};

    use super::super::query::QueryVector;
    use super::*;

    fn id(position: u64) -> RecordId {
        RecordId { session: SessionId([1; 16]), position: Position(position), part: 0 }
    }

    fn found(position: u64, at: i64, text: Option<f64>, vector: Option<f64>) -> Found {
        Found { id: id(position), at: Timestamp(at), text, vector }
    }

    fn order(query: &MemoryQuery, found: &[Found]) -> Vec<u64> {
        rank(query, found, Timestamp(0)).iter().map(|ranked| ranked.id.position.0).collect()
    }

    #[test]
    fn the_formula() {
        // ln(1 + 8.5 / 2.5) * 3 * 2.2 / (3 + 1.2 * (0.25 + 0.75 * 20 / 10))
        let score = bm25(3, 20, 2, Corpus { records: 10, tokens: 100 });
        assert!((score - 1.481_604_540_924_215_2 * 6.6 / 5.1).abs() < 1e-12, "{score}");
        assert!(bm25(1, 5, 10, Corpus { records: 10, tokens: 50 }) > 0.0, "a word of every record");
        assert_eq!(bm25(0, 0, 0, Corpus::default()), 0.0);
    }

    #[test]
    fn of_equals_the_newer() {
        let query = MemoryQuery::of_text("x");
        let equal = [3, 1, 2].map(|nth| found(nth, 5, Some(1.0), None));
        assert_eq!(order(&query, &equal), [3, 2, 1]);
        let newer =
            [found(1, 5, Some(1.0), None), found(2, 6, Some(1.0), None), found(3, 4, Some(2.0), None)];
        assert_eq!(order(&query, &newer), [3, 2, 1]);
        assert_eq!(order(&MemoryQuery { sort: MemorySort::Oldest, ..query.clone() }, &newer), [3, 1, 2]);
        assert_eq!(order(&MemoryQuery { sort: MemorySort::Newest, ..query }, &newer), [2, 1, 3]);
        assert_eq!(order(&MemoryQuery::default(), &newer), [2, 1, 3], "nothing asked: the newest");
    }

    #[test]
    fn ranks_are_fused() {
        let vector = QueryVector { model: "m".to_owned(), components: vec![1.0], weight: 0.5 };
        let query = MemoryQuery { vector: Some(vector), ..MemoryQuery::of_text("x") };
        let found = [
            found(1, 1, Some(9.0), None),
            found(2, 1, Some(3.0), Some(0.5)),
            found(3, 1, None, Some(0.9)),
            found(4, 1, None, None),
        ];
        let ranked = rank(&query, &found, Timestamp(0));
        let scores: Vec<(u64, f64)> = ranked.iter().map(|it| (it.id.position.0, it.score)).collect();
        assert_eq!(scores, [(2, 1.0 / 62.0 + 0.5 * (1.0 / 62.0)), (1, 1.0 / 61.0), (3, 0.5 * (1.0 / 61.0))]);
    }

    #[test]
    fn newer_counts_more_and_the_future_is_now() {
        let recency = Recency { weight: 1.0, half_life: Duration::from_secs(10) };
        let at = |at| boost(recency, Timestamp(at), Timestamp(100_000_000));
        assert_eq!((at(100_000_000), at(200_000_000)), (2.0, 2.0));
        assert!((at(90_000_000) - 1.5).abs() < 1e-12);
        assert!(at(-1_000_000_000) < 1.001);
    }

    proptest! {
        #[test]
        fn a_cosine_is_one_of_the_same_direction(a in prop::collection::vec(-5.0_f32..5.0, 1..8), scale in 0.1_f32..9.0) {
            let scaled: Vec<f32> = a.iter().map(|x| x * scale).collect();
            if let Some(cosine) = cosine(&a, &scaled) {
                prop_assert!((cosine - 1.0).abs() < 1e-4);
            }
        }

        #[test]
        fn an_order_is_whole_whatever_the_input(
            seeds in prop::collection::vec((0_u64..20, -3_i64..3, prop::option::of(0_u8..3), prop::option::of(-1.0_f64..1.0)), 0..30)
        ) {
            let mut all: Vec<Found> = Vec::new();
            for (nth, at, text, vector) in seeds {
                if all.iter().all(|other| other.id != id(nth)) {
                    all.push(found(nth, at, text.map(f64::from), vector));
                }
            }
            let vector = QueryVector { model: "m".to_owned(), components: vec![1.0], weight: 1.0 };
            let query = MemoryQuery { vector: Some(vector), ..MemoryQuery::of_text("x") };
            let once = rank(&query, &all, Timestamp(0));
            all.reverse();
            prop_assert_eq!(once, rank(&query, &all, Timestamp(0)));
        }
    }
}
