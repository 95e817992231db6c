//! Vectors of records, which a host's embedding model made: in the workspace's log.

use std::collections::BTreeMap;

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::{Event, LoggedEvent, VectorAttached};
use sessionlog_codec::ids::{KindNo, Position};
use sessionlog_codec::registry::kind;
use sessionlog_projections::memory::rank::cosine;
use sessionlog_projections::memory::{QueryVector, RecordId, check_components};

use super::MemoryReader;
use crate::error::{Error, Result};
use crate::store::shared_log::{Caught, SharedFold, SharedLog};

/// The longest name of a model, in bytes.
const MODEL_LEN_MAX: usize = 1024;

/// Nothing need be known to attach a vector.
#[derive(Default)]
struct Nothing;

impl SharedFold for Nothing {
    const KINDS: &'static [KindNo] = &[];

    fn apply(&mut self, _event: &LoggedEvent) {}
}

pub(super) fn attach(memory: &MemoryReader, id: RecordId, model: &str, components: &[f32]) -> Result<()> {
    if model.is_empty() || model.len() > MODEL_LEN_MAX {
        let message =
            format!("an embedding model's name has 1 to {MODEL_LEN_MAX} bytes, not {}", model.len());
        return Err(Error::invalid("memory.model", message));
    }
    check_components(components).map_err(|why| Error::invalid("memory.vector", why))?;
    let components = components.iter().flat_map(|component| component.to_le_bytes()).collect();
    let event = VectorAttached {
        record_id: id.to_string(),
        model: model.to_owned(),
        components: RawBytes(components),
    };
    let log = SharedLog::of_workspace(&memory.home, &memory.clock, &memory.workspace);
    log.transact(&mut Caught::<Nothing>::default(), |_| Ok((vec![Event::from(event)], ())))
}

/// The components of a vector; `None` if the bytes are none.
pub(super) fn components(bytes: &[u8]) -> Option<Vec<f32>> {
    let (chunks, rest) = bytes.as_chunks();
    (rest.is_empty() && !chunks.is_empty()).then(|| chunks.iter().copied().map(f32::from_le_bytes).collect())
}

/// The vector of an event, of a record's name that is one.
#[cfg(feature = "search")]
pub(super) fn attached(event: Event) -> Option<(RecordId, VectorAttached)> {
    match event {
        Event::VectorAttached(vector) => Some((vector.record_id.parse().ok()?, vector)),
        _ => None,
    }
}

/// The cosine of each record's vector with the one that is asked for. Of a record and a model, the last vector counts.
pub(super) fn cosines(memory: &MemoryReader, asked: &QueryVector) -> Result<BTreeMap<RecordId, f64>> {
    let mut found: BTreeMap<RecordId, Option<f64>> = BTreeMap::new();
    let log = SharedLog::of_workspace(&memory.home, &memory.clock, &memory.workspace);
    log.read(Position(1), &[kind::VectorAttached], &mut |logged| {
        if let Event::VectorAttached(vector) = logged.event
            && vector.model == asked.model
            && let Ok(id) = vector.record_id.parse()
        {
            let components = components(&vector.components.0);
            found.insert(id, components.and_then(|it| cosine(&asked.components, &it)));
        }
    })?;
    Ok(found.into_iter().filter_map(|(id, cosine)| Some((id, cosine?))).collect())
}
