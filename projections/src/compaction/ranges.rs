//! Message numbers as the ranges of an event.

use std::collections::BTreeSet;

use sessionlog_codec::event::MessageRange;
use sessionlog_codec::ids::MessageNo;

/// The fewest ranges that hold these numbers and no others, ascending. No range spans a number that is not among them:
/// it could be that of a message which is out of the model's sight today and not tomorrow.
pub(super) fn ranges(numbers: &BTreeSet<MessageNo>) -> Vec<MessageRange> {
    let mut ranges: Vec<MessageRange> = Vec::new();
    for number in numbers.iter().copied() {
        match ranges.last_mut() {
            Some(range) if range.last.next() == Some(number) => range.last = number,
            _ => ranges.push(MessageRange { first: number, last: number }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_and_nothing_else() {
        let numbers = [9, 3, 1, 2, u64::MAX, 5, u64::MAX - 1].map(MessageNo);
        let pairs: Vec<_> =
            ranges(&numbers.into()).iter().map(|range| (range.first.0, range.last.0)).collect();
        assert_eq!(pairs, [(1, 3), (5, 5), (9, 9), (u64::MAX - 1, u64::MAX)]);
        assert_eq!(ranges(&BTreeSet::new()), []);
    }
}
