//! Sizes as people write them: `500`, `64KiB`, `5 MB`.

use crate::{Error, Result};

const HINT: &str = "write a number of bytes, or a number and a unit: KB, MB, GB, TB, or KiB, MiB, GiB, TiB";

/// Reads a size: a whole number of bytes, or of a unit. `KB` is a thousand bytes, `KiB` (or `K`) 1024; case does not
/// matter.
pub fn parse_size(text: &str) -> Result<u64> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let size = bytes_in(unit.trim_start())
        .zip(number.parse::<u64>().ok())
        .and_then(|(unit, number)| number.checked_mul(unit));
    size.ok_or_else(|| Error::Usage {
        message: format!("{text:?} is not a size"),
        hint: Some(HINT.to_owned()),
    })
}

fn bytes_in(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("500", 500),
            ("7B", 7),
            ("2KB", 2_000),
            ("64KiB", 65_536),
            (" 5 MiB ", 5 << 20),
            ("1gb", 1_000_000_000),
            ("3G", 3 << 30),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text:?}");
        }
    }

    #[test]
    fn refuses_everything_else_with_the_units() {
        for text in
            ["", " ", "MiB", "-1", "1.5GB", "5 minutes", "1 KB 2", "99999999999999999999", "99999999TiB"]
        {
            let error = parse_size(text).unwrap_err();
            assert!(
                matches!(&error, Error::Usage { hint: Some(hint), .. } if hint.contains("MiB")),
                "{text:?}"
            );
        }
    }
}
