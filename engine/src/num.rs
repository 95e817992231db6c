//! Lengths between memory (`usize`) and files (`u64`). Both are 64 bits wherever a log of any size is opened; where
//! they are not, a length that does not fit saturates and the next bounds check refuses it.

pub(crate) fn to_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

pub(crate) fn to_usize(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
