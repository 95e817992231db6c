//! A row of the catalog, as bytes of a database that anything may have happened to. The first byte chooses: 0, the rest is the
//! row; else it is the row's content, under a header that is right.
//!
//! Asserted: no panic; what decodes encodes to the same bytes, so nothing of a row is ignored.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// The version of a row's layout.
const ROW_VERSION: u16 = 1;

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else { return };
    let mut row = Vec::new();
    if *choice > 0 {
        row.extend_from_slice(&ROW_VERSION.to_le_bytes());
        row.extend_from_slice(&crc32fast::hash(rest).to_le_bytes());
    }
    row.extend_from_slice(rest);
    if let Some(again) = sessionlog::recode_catalog_row(&row) {
        assert_eq!(again, row);
    }
});
