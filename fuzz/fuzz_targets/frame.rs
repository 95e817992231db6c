//! Any bytes as a frame, and as the contents of a frame whose checksums hold: never a panic, and what decodes is encoded
//! to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sessionlog_codec::event::Event;
use sessionlog_codec::frame::{self, Frame, KIND_RECORDS};
use sessionlog_codec::ids::Digest;
use sessionlog_codec::limits::FRAME_HEADER_LEN;

mod sound;

const SALT: u32 = 0x5eed_cafe;
const CHAIN: std::ops::Range<usize> = 40..72;

fuzz_target!(|data: &[u8]| {
    let _ = Frame::decode(data, SALT);
    let Some(bytes) = sound::frame(data, SALT) else { return };
    let Ok(frame) = Frame::decode(&bytes, SALT) else { return };
    let previous = Digest::default();
    let chain = frame.chain_after(&previous);
    if frame.header().fields.kind != KIND_RECORDS {
        return assert!(frame.records().is_empty());
    }
    let records: Vec<_> =
        frame.records().iter().map(|record| (record.envelope.clone(), record.payload)).collect();
    let mut again = Vec::new();
    assert_eq!(
        frame::encode(&mut again, SALT, &previous, frame.header().fields.clone(), &records),
        Ok(chain)
    );
    assert_eq!(again.len(), frame.header().frame_len());
    let same = |range: std::ops::Range<usize>| assert_eq!(again[range.clone()], bytes[range]);
    same(0..CHAIN.start);
    same(CHAIN.end..CHAIN.end + 4);
    same(FRAME_HEADER_LEN..bytes.len());
    for record in frame.records() {
        let _ = Event::decode(record.envelope.kind, record.envelope.schema, record.payload);
    }
});
