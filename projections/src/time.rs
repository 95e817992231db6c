//! Times as people and other programs read them (RFC 3339). A log's own times are microseconds.

use jiff::Unit;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use sessionlog_codec::ids::Timestamp;

/// 0000-01-01T00:00:00Z: RFC 3339 has no earlier year.
const FIRST: i64 = -62_167_219_200_000_000;
/// The time in whole seconds: `2026-05-28T03:41:37Z`. Times before year 0 and after 9999 become the first and last time
/// that can be written.
#[must_use]
pub fn rfc3339_seconds(timestamp: Timestamp) -> String {
    let seconds = written(timestamp).div_euclid(1_000_000);
    jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// The time in microseconds: `2026-05-28T03:41:37.000000Z`. Times before year 0 and after 9999 become the first and
/// last time that can be written.
#[must_use]
pub fn rfc3339_micros(timestamp: Timestamp) -> String {
    let micros = written(timestamp);
    format!("{:.6}", jiff::Timestamp::from_microsecond(micros).unwrap_or_default())
}

/// The nearest time that can be written, in microseconds.
fn written(timestamp: Timestamp) -> i64 {
    // jiff takes microseconds up to the last whole second, not up to the last microsecond.
    let last = jiff::Timestamp::MAX.as_second().saturating_mul(1_000_000);
    timestamp.0.clamp(FIRST, last)
}

/// Reads an RFC 3339 time, with `Z`, an offset, or (as some agents write it) neither: then it is taken for UTC. Smaller
/// parts than microseconds are cut off. `None`: no time.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let exact = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let local = text.parse::<DateTime>().ok()?;
        TimeZone::UTC.to_timestamp(local).ok()
    })?;
    let micros =
        exact.round(jiff::TimestampRound::new().smallest(Unit::Microsecond).mode(jiff::RoundMode::Floor));
    Some(Timestamp(micros.ok()?.as_microsecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_the_spellings_of_one_time_are_read() {
        let expected = Some(Timestamp(1_779_939_697_000_000));
        for text in [
            "2026-05-28T03:41:37Z",
            "2026-05-28T03:41:37.000Z",
            "2026-05-28T05:41:37+02:00",
            "2026-05-28 03:41:37Z",
            "2026-05-28T03:41:37",
            " 2026-05-28T03:41:37.000000\n",
        ] {
            assert_eq!(parse_rfc3339(text), expected, "{text:?}");
        }
        assert_eq!(parse_rfc3339("2026-05-28T03:41:37.123456789Z").map(|t| t.0 % 1_000_000), Some(123_456));
        for text in ["", "yesterday", "2026-13-01T00:00:00Z", "-1", "NaN"] {
            assert_eq!(parse_rfc3339(text), None, "{text:?}");
        }
    }

    #[test]
    fn times_out_of_range_are_written_as_the_nearest_one() {
        assert_eq!(rfc3339_seconds(Timestamp(1_779_939_697_999_999)), "2026-05-28T03:41:37Z");
        assert_eq!(rfc3339_micros(Timestamp(1_779_939_697_000_001)), "2026-05-28T03:41:37.000001Z");
        assert_eq!(rfc3339_seconds(Timestamp(-1)), "1969-12-31T23:59:59Z");
        assert_eq!(rfc3339_seconds(Timestamp(i64::MIN)), "0000-01-01T00:00:00Z");
        assert_eq!(rfc3339_micros(Timestamp(i64::MAX)), "9999-12-30T22:00:00.000000Z");
        for time in [i64::MIN, -1, 0, i64::MAX] {
            let text = rfc3339_micros(Timestamp(time));
            assert_eq!(parse_rfc3339(&text), Some(Timestamp(written(Timestamp(time)))));
        }
    }
}
