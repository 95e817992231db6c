//! Any bytes as the end of a sealed segment: its locator, and its footer with checksums that hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sessionlog_codec::footer::{self, LOCATOR_LEN};
use sessionlog_codec::frame::Frame;

mod sound;

const SALT: u32 = 0x5eed_cafe;

fuzz_target!(|data: &[u8]| {
    let (_, locator) = data.split_at(data.len().saturating_sub(LOCATOR_LEN));
    let _ = footer::locate(locator);
    let Some(bytes) = sound::frame(data, SALT) else { return };
    let Ok(frame) = Frame::decode(&bytes, SALT) else { return };
    let Ok(entries) = footer::decode(&frame) else { return };
    let (fields, chain) = (&frame.header().fields, &frame.header().chain);
    let mut again = Vec::new();
    footer::encode(&mut again, SALT, fields.first_position, fields.epoch, chain, &entries).unwrap();
    let (again, locator) = again.split_at(again.len() - LOCATOR_LEN);
    assert_eq!(footer::locate(locator), Some(again.len()));
    let again = Frame::decode(again, SALT).unwrap();
    assert_eq!(again.body(), frame.body());
    assert_eq!(footer::decode(&again), Ok(entries));
});
