//! Binary content inside a patch: git's `literal` blocks, which hold the whole content, deflated and in base 85.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
/// The most that one line holds: its length is a single letter, `A`–`Z` for 1–26 and `a`–`z` for 27–52.
const LINE_BYTES: usize = 52;

/// Writes one block, with the empty line that ends it. Nothing is held in memory but one line.
pub(super) fn write_literal(out: &mut dyn Write, content: &[u8]) -> io::Result<()> {
    writeln!(out, "literal {}", content.len())?;
    let mut deflate = ZlibEncoder::new(Base85Lines::new(&mut *out), Compression::default());
    deflate.write_all(content)?;
    deflate.finish()?.finish()?;
    writeln!(out)
}

/// Turns the bytes written to it into lines of base 85.
struct Base85Lines<W> {
    out: W,
    pending: Vec<u8>,
}

impl<W: Write> Base85Lines<W> {
    fn new(out: W) -> Self {
        Self { out, pending: Vec::with_capacity(LINE_BYTES) }
    }

    fn write_line(&mut self) -> io::Result<()> {
        let mut line = Vec::with_capacity(2 + LINE_BYTES / 4 * 5);
        line.push(length_letter(self.pending.len()));
        for group in self.pending.chunks(4) {
            line.extend_from_slice(&encode_group(group));
        }
        line.push(b'\n');
        self.pending.clear();
        self.out.write_all(&line)
    }

    fn finish(mut self) -> io::Result<()> {
        if self.pending.is_empty() { Ok(()) } else { self.write_line() }
    }
}

impl<W: Write> Write for Base85Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(LINE_BYTES - self.pending.len());
        self.pending.extend_from_slice(&bytes[..taken]);
        if self.pending.len() == LINE_BYTES {
            self.write_line()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn length_letter(bytes: usize) -> u8 {
    let index = bytes as u8 - 1;
    if index < 26 { b'A' + index } else { b'a' + index - 26 }
}

/// Five letters for up to four bytes; missing ones count as zero, and the line's length tells them off again.
fn encode_group(group: &[u8]) -> [u8; 5] {
    let mut bytes = [0; 4];
    bytes[..group.len()].copy_from_slice(group);
    let mut number = u32::from_be_bytes(bytes);
    let mut letters = [0; 5];
    for letter in letters.iter_mut().rev() {
        *letter = ALPHABET[(number % 85) as usize];
        number /= 85;
    }
    letters
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;
    use proptest::prelude::*;

    use super::*;

    fn decode_line(line: &[u8], out: &mut Vec<u8>) {
        let length = match line[0] {
            letter @ b'A'..=b'Z' => usize::from(letter - b'A') + 1,
            letter => usize::from(letter - b'a') + 27,
        };
        let start = out.len();
        for letters in line[1..].chunks(5) {
            let digit = |letter: &u8| ALPHABET.iter().position(|a| a == letter).unwrap() as u64;
            let number = letters.iter().fold(0, |sum, letter| sum * 85 + digit(letter));
            out.extend_from_slice(&u32::try_from(number).unwrap().to_be_bytes());
        }
        out.truncate(start + length);
    }

    fn decode(block: &[u8]) -> Vec<u8> {
        let mut lines = block.split(|byte| *byte == b'\n');
        let header = String::from_utf8(lines.next().unwrap().to_vec()).unwrap();
        let mut deflated = Vec::new();
        lines.by_ref().take_while(|line| !line.is_empty()).for_each(|line| decode_line(line, &mut deflated));
        let mut content = Vec::new();
        ZlibDecoder::new(&deflated[..]).read_to_end(&mut content).unwrap();
        assert_eq!(header, format!("literal {}", content.len()));
        content
    }

    #[test]
    fn the_empty_literal_is_one_line_of_eight_bytes() {
        let mut out = Vec::new();
        write_literal(&mut out, b"").unwrap();
        assert!(out.starts_with(b"literal 0\nH"), "{:?}", String::from_utf8_lossy(&out));
        assert!(out.ends_with(b"00001\n\n"));
        assert!(decode(&out).is_empty());
    }

    #[test]
    fn lines_hold_at_most_52_bytes() {
        assert_eq!((length_letter(1), length_letter(26)), (b'A', b'Z'));
        assert_eq!((length_letter(27), length_letter(52)), (b'a', b'z'));
        let noise: Vec<u8> = (0..500u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut out = Vec::new();
        write_literal(&mut out, &noise).unwrap();
        assert!(out.split(|b| *b == b'\n').all(|line| line.len() <= 66));
    }

    #[test]
    fn a_failing_writer_is_reported() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        assert!(write_literal(&mut Full, b"x").is_err());
        assert!(Base85Lines::new(Full).flush().is_err());
    }

    proptest! {
        #[test]
        fn every_content_survives(content in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut out = Vec::new();
            write_literal(&mut out, &content).unwrap();
            prop_assert_eq!(decode(&out), content);
        }
    }
}
