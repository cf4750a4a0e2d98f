//! The mount table of this process.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use sandboxer_core::{Error, Result};

/// What is mounted strictly below a directory, in the order it was mounted.
pub fn submounts(below: &Path) -> Result<Vec<PathBuf>> {
    let table = Path::new("/proc/self/mountinfo");
    let below = below.canonicalize().map_err(|e| Error::io("resolve", below, e))?;
    let lines = std::fs::read(table).map_err(|e| Error::io("read", table, e))?;
    let mut found: Vec<PathBuf> = lines.split(|byte| *byte == b'\n').filter_map(mount_point).collect();
    found.retain(|point| *point != below && point.starts_with(&below));
    Ok(found)
}

/// The fifth field of a line of `mountinfo`.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let field = line.split(|byte| *byte == b' ').nth(4)?;
    Some(OsString::from_vec(unescaped(field)).into())
}

/// Blanks and backslashes are written as `\` and three octal digits.
fn unescaped(mut field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    while let [first, rest @ ..] = field {
        let (byte, rest) = match field {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), rest)
            }
            _ => (*first, rest),
        };
        plain.push(byte);
        field = rest;
    }
    plain
}

/// The ids of the mounts in a table whose filesystem is the device `major:minor`.
pub(super) fn mounts_of(table: &str, device: &str) -> Vec<u64> {
    let id = |line: &str| {
        let mut fields = line.split(' ');
        let id = fields.next()?.parse().ok()?;
        (fields.nth(1)? == device).then_some(id)
    };
    table.lines().filter_map(id).collect()
}

/// The uppers of the overlays in a table whose device is `major:minor`.
pub(super) fn uppers_of(table: &[u8], device: &str) -> Vec<PathBuf> {
    let upper = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let options = fields.last().filter(|_| fields.get(2) == Some(&device.as_bytes()))?;
        let value = options.split(|byte| *byte == b',').find_map(|o| o.strip_prefix(b"upperdir="))?;
        Some(PathBuf::from(OsString::from_vec(unescaped(value))))
    };
    table.split(|byte| *byte == b'\n').filter_map(upper).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_and_what_is_none_is_kept() {
        assert_eq!(unescaped(br"/a\040b\011c\012d\134e\043"), b"/a b\tc\nd\\e#");
        assert_eq!(unescaped(br"/a\9\04"), br"/a\9\04");
        assert_eq!(unescaped(b"\xff\\377"), b"\xff\xff");
        assert_eq!(unescaped(br"\777"), br"\777");
    }

    #[test]
    fn the_mount_point_is_the_fifth_field() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_point(line), Some("/mnt 2".into()));
        assert_eq!(mount_point(b""), None);
    }

    #[test]
    fn mounts_are_found_by_device() {
        let table =
            "36 35 0:41 / /a rw - overlay o rw\n37 35 0:4 / /b rw - x y rw\n38 1 0:41 / /c rw - o o rw\n";
        assert_eq!(mounts_of(table, "0:41"), [36, 38]);
        assert_eq!(mounts_of("garbage\n", "0:41"), [0u64; 0]);
    }

    #[test]
    fn uppers_are_found_by_device() {
        let table = br"36 35 0:41 / /a rw - overlay o rw,lowerdir+=/l,upperdir=/a\054b\040c/u,workdir=/w
37 35 0:4 / /b rw - overlay o rw,upperdir=/no
38 35 0:41 / /c rw - tmpfs t rw";
        assert_eq!(uppers_of(table, "0:41"), [PathBuf::from("/a,b c/u")]);
    }

    #[test]
    fn what_is_mounted_below_the_root_is_found() {
        let found = submounts(Path::new("/")).unwrap_or_default();
        assert!(found.contains(&"/proc".into()) && !found.contains(&"/".into()));
        assert!(submounts(Path::new("/no/such/directory")).is_err());
    }
}
