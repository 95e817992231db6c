//! Files that mean nothing to a session and are kept all the same: the journals of workflows.

use crate::import::lines::Record;
use crate::import::mapper::{Mapped, Mapper, NotOneValue, Stamp, map_object};

use super::line::Line;

/// Takes each record for itself.
#[derive(Debug)]
pub(in crate::import) struct RawOnly {
    prefix: &'static str,
}

impl RawOnly {
    /// `prefix` goes before the records' own words.
    pub(in crate::import) fn new(prefix: &'static str) -> Self {
        Self { prefix }
    }
}

impl Mapper for RawOnly {
    fn map(&mut self, record: &Record<'_>) -> Result<Mapped, NotOneValue> {
        let of = |kind: &str| Mapped::new(&format!("{}/{kind}", self.prefix), Stamp::default());
        let mapped = map_object(record, |text| Some(of(&Line::decode(text)?.kind())))?;
        Ok(mapped.unwrap_or_else(|| of("json")))
    }
}
