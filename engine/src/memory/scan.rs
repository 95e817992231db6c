//! Searching by reading every log: what is right by construction, and what an index has to agree with.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use sessionlog_codec::ids::{Position, Timestamp};
use sessionlog_projections::memory::rank::{Corpus, Found, bm25, rank};
use sessionlog_projections::memory::{ArchiveStep, MemoryQuery, MemoryRecord, RecordId, Tokens, tokens};

use super::load::{self, Located};
use super::source::{Folding, Origin, Source, sources};
use super::{FoundBy, MemoryHits, MemoryReader, hit, page, vectors};
use crate::error::{ErrorKind, Result};
use crate::store::look_at_each;

/// A record without its text, and what is counted of it.
pub(super) struct Entry {
    pub(super) record: MemoryRecord,
    pub(super) place: Position,
    pub(super) is_bare: bool,
    /// Words.
    len: u64,
    /// How often it has each word of the query.
    frequencies: Vec<u64>,
}

impl Entry {
    fn at(self, source: Source) -> Located {
        Located { record: self.record, is_bare: self.is_bare, source, place: self.place }
    }
}

/// What is kept of the records that a query may find.
struct Kept {
    entry: Entry,
    source: usize,
}

pub(super) fn search(memory: &MemoryReader, query: &MemoryQuery, now: Timestamp) -> Result<MemoryHits> {
    let sources = sources(&memory.home, &memory.workspace)?;
    let terms = query.terms();
    let words = terms.as_deref().unwrap_or_default();
    let vectors = query.vector.as_ref().map(|asked| vectors::cosines(memory, asked)).transpose()?;
    let (mut corpus, mut holders) = (Corpus::default(), vec![0_u64; words.len()]);
    let (mut kept, mut unread) = (Vec::new(), Vec::new());
    let numbered: Vec<(usize, &Source)> = sources.iter().enumerate().collect();
    let look = |(_, source): &(usize, &Source)| entries(source, &memory.archive_tools, words);
    let is_asked = |entry: &Entry| {
        let by_text = entry.frequencies.iter().any(|frequency| *frequency > 0);
        let by_vector = vectors.as_ref().is_some_and(|all| all.contains_key(&entry.record.id));
        by_text || by_vector || (terms.is_none() && vectors.is_none())
    };
    look_at_each(&numbered, &look, |(source, of), entries| {
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(session = %of.session, %error, "a session's memory can't be read");
                unread.push(of.session);
                return;
            }
        };
        for entry in entries {
            corpus.records = corpus.records.saturating_add(1);
            corpus.tokens = corpus.tokens.saturating_add(entry.len);
            for (holders, frequency) in holders.iter_mut().zip(&entry.frequencies) {
                *holders = holders.saturating_add(u64::from(*frequency > 0));
            }
            if query.filter.takes(&entry.record) && is_asked(&entry) {
                kept.push(Kept { entry, source: *source });
            }
        }
    });
    let found = kept.iter().map(|Kept { entry, .. }| Found {
        id: entry.record.id,
        at: entry.record.at,
        text: text_score(entry, &holders, corpus),
        vector: vectors.as_ref().and_then(|all| all.get(&entry.record.id)).copied(),
    });
    let ranked = rank(query, &found.collect::<Vec<_>>(), now);
    let page = page(query, &ranked);
    let wanted: BTreeSet<RecordId> = page.iter().map(|ranked| ranked.id).collect();
    let chosen = kept.into_iter().filter(|kept| wanted.contains(&kept.entry.record.id));
    let chosen: BTreeMap<RecordId, Located> = chosen
        .filter_map(|Kept { entry, source }| Some((entry.record.id, entry.at(sources.get(source)?.clone()))))
        .collect();
    let located: Vec<Located> = page.iter().filter_map(|it| chosen.get(&it.id)).cloned().collect();
    let texts = load::texts(&located);
    let hits = page.iter().zip(located).zip(texts).filter_map(|((ranked, located), text)| {
        // What was removed since is not given.
        Some(hit(query, ranked, located.record, &text?))
    });
    let total = u64::try_from(ranked.len()).unwrap_or(u64::MAX);
    unread.sort_unstable();
    Ok(MemoryHits { hits: hits.collect(), total, by: FoundBy::Scan, unread })
}

fn text_score(entry: &Entry, holders: &[u64], corpus: Corpus) -> Option<f64> {
    let frequencies = entry.frequencies.iter().zip(holders).filter(|(frequency, _)| **frequency > 0);
    let scores = frequencies.map(|(frequency, holders)| bm25(*frequency, entry.len, *holders, corpus));
    scores.reduce(|sum, score| sum + score)
}

/// Where a record is.
pub(super) fn find(memory: &MemoryReader, id: RecordId) -> Result<Option<Located>> {
    let of = |origin| Source::of(&memory.home, &memory.workspace, id.session, origin);
    for source in [of(Origin::Session), of(Origin::Archive)] {
        let entries = entries(&source, &memory.archive_tools, &[])?;
        if let Some(entry) = entries.into_iter().find(|entry| entry.record.id == id) {
            return Ok(Some(entry.at(source)));
        }
    }
    Ok(None)
}

/// The records of a log, as they stand at its end. A log that is not there has none.
pub(super) fn entries(
    source: &Source,
    archive_tools: &BTreeSet<String>,
    words: &[String],
) -> Result<Vec<Entry>> {
    let mut folding = Folding::of(source, archive_tools);
    let mut sketch = Sketch { words, entries: Vec::new(), tags: BTreeSet::new() };
    let read = source.log().read_since(None, &mut |records| {
        for record in records {
            folding.apply(source.session, record, &mut |step| sketch.apply(record.position, step));
        }
        ControlFlow::Continue(())
    });
    match read {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(sketch.finish()),
    }
}

struct Sketch<'w> {
    words: &'w [String],
    entries: Vec<Entry>,
    tags: BTreeSet<String>,
}

impl Sketch<'_> {
    fn apply(&mut self, place: Position, step: ArchiveStep) {
        match step {
            ArchiveStep::Record(mut record) => {
                let (len, frequencies) = count(&record, self.words);
                record.text = String::new();
                let is_bare = Located::is_bare(record.kind, &record.tags);
                self.entries.push(Entry { record: *record, place, is_bare, len, frequencies });
            }
            ArchiveStep::Settled { position, part, status } => {
                let key = |entry: &Entry| (entry.record.id.position, entry.record.id.part);
                let at = self.entries.partition_point(|entry| key(entry) < (position, part));
                if let Some(entry) = self.entries.get_mut(at).filter(|entry| key(entry) == (position, part)) {
                    entry.record.status = status;
                }
            }
            ArchiveStep::Tagged(tags) => self.tags = tags,
            ArchiveStep::Erased(positions) => {
                let gone: BTreeSet<Position> = positions.into_iter().collect();
                self.entries.retain(|entry| !gone.contains(&entry.record.id.position));
            }
            ArchiveStep::NodesErased(nodes) => {
                self.entries.retain(|entry| !nodes.contains(&entry.record.node));
            }
            ArchiveStep::Inherited => self.entries.clear(),
        }
    }

    fn finish(mut self) -> Vec<Entry> {
        for entry in &mut self.entries {
            with_tags(&mut entry.record, &self.tags);
        }
        self.entries
    }
}

/// Gives a record the tags of its session too.
pub(super) fn with_tags(record: &mut MemoryRecord, tags: &BTreeSet<String>) {
    record.tags.extend(tags.iter().cloned());
    record.tags.sort_unstable();
    record.tags.dedup();
}

/// How many words a record has, and how often each of some, which are in order.
fn count(record: &MemoryRecord, words: &[String]) -> (u64, Vec<u64>) {
    let (mut len, mut frequencies) = (0_u64, vec![0_u64; words.len()]);
    for text in record.searched() {
        tokens(text, Tokens::OfText, &mut |token| {
            len = len.saturating_add(1);
            let at = words.binary_search_by(|word| word.as_str().cmp(token));
            if let Some(frequency) = at.ok().and_then(|at| frequencies.get_mut(at)) {
                *frequency = frequency.saturating_add(1);
            }
        });
    }
    (len, frequencies)
}
