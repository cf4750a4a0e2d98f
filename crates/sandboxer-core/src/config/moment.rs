//! Moments as people write them.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::{Error, Result};

/// A date is its midnight of UTC; a time says its own offset.
pub fn parse_moment(text: &str) -> Result<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let midnight = text.parse::<Date>().and_then(|date| date.to_zoned(TimeZone::UTC));
    // A date that is followed by a time without an offset reads as that date; nobody meant its midnight.
    match midnight {
        Ok(midnight) if !text.contains(':') => Ok(midnight.timestamp()),
        _ => Err(Error::Usage {
            message: format!("{text:?} is neither a date nor a time"),
            hint: Some(
                "write a date, such as 2026-11-01, or a time with its offset, such as 2026-11-01T12:00:00Z"
                    .to_owned(),
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_date_is_its_midnight_and_a_time_itself() {
        assert_eq!(parse_moment("2026-11-01").unwrap().to_string(), "2026-11-01T00:00:00Z");
        assert_eq!(parse_moment("2026-11-01T12:30:00+02:00").unwrap().to_string(), "2026-11-01T10:30:00Z");
        for wrong in ["", "november", "2026-13-01", "2026-02-30", "2026-11-01T12:00", "-1"] {
            assert!(matches!(parse_moment(wrong), Err(Error::Usage { .. })), "{wrong}");
        }
    }
}
