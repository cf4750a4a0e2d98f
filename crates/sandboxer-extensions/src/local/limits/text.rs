//! Sizes and times for people.

use std::time::Duration;

const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];

/// A size in the largest unit that leaves it whole, so that a limit is told as it was given.
pub(super) fn size(bytes: u64) -> String {
    let unit = (1..=UNITS.len()).rev().find(|power| bytes > 0 && bytes.is_multiple_of(1 << (10 * power)));
    match unit {
        Some(power) => format!("{} {}", bytes >> (10 * power), UNITS[power - 1]),
        None => format!("{bytes} bytes"),
    }
}

/// A time in the units that configuration takes.
pub(super) fn time(time: Duration) -> String {
    let (seconds, milliseconds) = (time.as_secs(), u64::from(time.subsec_millis()));
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s"), (milliseconds, "ms")];
    let told: String = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if told.is_empty() { "0s".to_owned() } else { told }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_told_as_it_was_given() {
        for (bytes, told) in [
            (0, "0 bytes"),
            (1000, "1000 bytes"),
            (1 << 10, "1 KiB"),
            (1536 << 20, "1536 MiB"),
            (2 << 40, "2 TiB"),
        ] {
            assert_eq!(size(bytes), told);
        }
    }

    #[test]
    fn a_time_is_told_as_it_was_given() {
        for (milliseconds, told) in
            [(0, "0s"), (250, "250ms"), (600_000, "10m"), (5_400_000, "1h30m"), (90_000_000, "25h")]
        {
            assert_eq!(time(Duration::from_millis(milliseconds)), told);
        }
    }
}
