//! Durations as people write them: `30m`, `2h`, `7d`, `1h30m`.

use jiff::SignedDuration;

use crate::{Error, Result};

/// A century. Longer is a typing error, and would overflow the calendar when added to a time.
const LONGEST_SECONDS: i64 = 100 * 365 * 86_400;

const HINT: &str = "write a number and a unit, such as 90s, 30m, 2h, 7d or 1h30m";

/// Reads a duration: numbers with the units `ms`, `s`, `m`, `h`, `d` or `w`, one after another. `0s` is allowed.
pub fn parse_duration(text: &str) -> Result<SignedDuration> {
    let mut rest = text.trim();
    let mut total = SignedDuration::ZERO;
    if rest.is_empty() {
        return Err(invalid(text, "is empty"));
    }
    while !rest.is_empty() {
        let (part, remaining) = take_part(rest).ok_or_else(|| invalid(text, "is not a duration"))?;
        total = total.checked_add(part).ok_or_else(|| invalid(text, "is too long"))?;
        rest = remaining.trim_start();
    }
    if total.as_secs() > LONGEST_SECONDS {
        return Err(invalid(text, "is longer than a hundred years"));
    }
    Ok(total)
}

/// Reads a time to live: a duration that is not zero.
pub fn parse_ttl(text: &str) -> Result<SignedDuration> {
    match parse_duration(text)? {
        SignedDuration::ZERO => Err(invalid(text, "is no time at all")),
        ttl => Ok(ttl),
    }
}

/// The first number and unit of `text`, and what follows them.
fn take_part(text: &str) -> Option<(SignedDuration, &str)> {
    let (digits, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit_end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, remaining) = rest.split_at(unit_end);
    let milliseconds = digits.parse::<i64>().ok()?.checked_mul(milliseconds_in(unit)?)?;
    Some((SignedDuration::from_millis(milliseconds), remaining))
}

fn milliseconds_in(unit: &str) -> Option<i64> {
    Some(match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 604_800_000,
        _ => return None,
    })
}

fn invalid(text: &str, what: &str) -> Error {
    Error::Usage { message: format!("{text:?} {what}"), hint: Some(HINT.to_owned()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_what_people_write() {
        let table = [
            ("30m", 1_800),
            ("2h", 7_200),
            ("7d", 604_800),
            ("1w", 604_800),
            ("90s", 90),
            ("1h30m", 5_400),
            (" 1d 2h ", 93_600),
            ("0s", 0),
        ];
        for (text, seconds) in table {
            assert_eq!(parse_duration(text).unwrap(), SignedDuration::from_secs(seconds), "{text:?}");
        }
        assert_eq!(parse_duration("250ms").unwrap(), SignedDuration::from_millis(250));
    }

    #[test]
    fn refuses_everything_else_with_an_example() {
        for text in [
            "",
            " ",
            "30",
            "m",
            "-5m",
            "5 minutes",
            "1.5h",
            "5m3",
            "1y",
            "99999999999999999999s",
            "101y",
            "36501d",
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(matches!(error, Error::Usage { hint: Some(_), .. }), "{text:?}: {error:?}");
        }
        assert!(parse_duration("9223372036854775s 9223372036854775s").is_err());
        assert!(parse_duration("9223372036854775807w").is_err());
    }

    #[test]
    fn a_time_to_live_is_longer_than_nothing() {
        assert!(parse_ttl("0m").is_err());
        assert_eq!(parse_ttl("1s").unwrap(), SignedDuration::from_secs(1));
    }
}
