//! Makes checksums hold, so that a fuzzer gets behind them.

use sessionlog_codec::limits::FRAME_HEADER_LEN;

/// The bytes as a frame whose magic, body length and checksums are right; all else is as the fuzzer says.
pub fn frame(data: &[u8], salt: u32) -> Option<Vec<u8>> {
    let mut bytes = data.to_vec();
    let (header, body) = bytes.split_at_mut_checked(FRAME_HEADER_LEN)?;
    header[..4].copy_from_slice(b"\xf5SLf");
    header[8..12].copy_from_slice(&u32::try_from(body.len()).ok()?.to_le_bytes());
    header[72..76].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(&header[..76]);
    header[76..].copy_from_slice(&hasher.finalize().to_le_bytes());
    Some(bytes)
}
