//! Frames: header lines, an empty line, a message, an attachment.
//!
//! Whoever is on the other side may be broken or hostile, so every length is checked before a byte of it is read, and memory
//! is taken as bytes arrive.

use std::io::{self, BufRead, IoSlice, Read, Write};

/// Most bytes of a header.
pub const MAX_HEADER: u64 = 4 << 10;
/// Most bytes of a message.
pub const MAX_MESSAGE: u64 = 32 << 20;
/// Most bytes of an attachment.
pub const MAX_ATTACHMENT: u64 = 64 << 20;

/// One message with the bytes that belong to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// JSON.
    pub message: Vec<u8>,
    /// Raw bytes; empty for most messages.
    pub attachment: Vec<u8>,
}

/// Why there is no frame.
#[derive(Debug)]
pub enum FrameError {
    /// The pipe failed.
    Io(io::Error),
    /// It ended inside a frame; the line of the header it was in, if it was in one.
    CutShort(String),
    /// What came is no header of a frame.
    NotAFrame(String),
    /// It announces more than is taken.
    TooLarge {
        /// `a message` or `an attachment`.
        what: &'static str,
        /// Announced.
        bytes: u64,
        /// Taken.
        limit: u64,
    },
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "its output cannot be read: {error}"),
            Self::CutShort(at) if at.is_empty() => f.write_str("its output ended in the middle of a frame"),
            Self::CutShort(at) => write!(f, "its output ended in the middle of a frame, after {at:?}"),
            Self::NotAFrame(start) => {
                write!(
                    f,
                    "its output is no frame: {start:?}; standard output carries the protocol and nothing else"
                )
            }
            Self::TooLarge { what, bytes, limit } => {
                write!(f, "it announces {what} of {bytes} bytes, {limit} is the limit")
            }
        }
    }
}

impl FrameError {
    /// The same, with what it quotes made fit to be told.
    pub fn quoting(self, fit: impl Fn(&str) -> String) -> Self {
        match self {
            Self::CutShort(text) => Self::CutShort(fit(&text)),
            Self::NotAFrame(text) => Self::NotAFrame(fit(&text)),
            other => other,
        }
    }
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The next frame; `None` where the input ended between two.
pub fn read_frame(input: &mut impl BufRead) -> Result<Option<Frame>, FrameError> {
    let Some((message, attachment)) = read_header(input)? else { return Ok(None) };
    Ok(Some(Frame { message: read_exactly(input, message)?, attachment: read_exactly(input, attachment)? }))
}

/// The lengths of message and attachment.
fn read_header(input: &mut impl BufRead) -> Result<Option<(u64, u64)>, FrameError> {
    let mut header = input.take(MAX_HEADER);
    let (mut message, mut attachment) = (None, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        if header.read_until(b'\n', &mut line)? == 0 {
            // The end of the input; or of the patience with a header.
            let untouched = header.limit() == MAX_HEADER;
            return if untouched { Ok(None) } else { Err(FrameError::CutShort(String::new())) };
        }
        let Some(text) = line.strip_suffix(b"\n").map(|l| l.strip_suffix(b"\r").unwrap_or(l)) else {
            let is_too_long = header.limit() == 0;
            return Err(if is_too_long { not_a_frame(&line) } else { FrameError::CutShort(quoted(&line)) });
        };
        if text.is_empty() {
            let message = message.ok_or_else(|| not_a_frame(&line))?;
            return Ok(Some((message, attachment)));
        }
        match field(text).ok_or_else(|| not_a_frame(&line))? {
            Field::Message(bytes) => message = Some(within("a message", bytes, MAX_MESSAGE)?),
            Field::Attachment(bytes) => attachment = within("an attachment", bytes, MAX_ATTACHMENT)?,
            Field::Other => {}
        }
    }
}

enum Field {
    Message(u64),
    Attachment(u64),
    Other,
}

fn field(line: &[u8]) -> Option<Field> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !is_name {
        return None;
    }
    Some(match name.to_ascii_lowercase().as_str() {
        "content-length" => Field::Message(value.trim().parse().ok()?),
        "attachment-length" => Field::Attachment(value.trim().parse().ok()?),
        _ => Field::Other,
    })
}

fn within(what: &'static str, bytes: u64, limit: u64) -> Result<u64, FrameError> {
    if bytes > limit { Err(FrameError::TooLarge { what, bytes, limit }) } else { Ok(bytes) }
}

fn not_a_frame(line: &[u8]) -> FrameError {
    FrameError::NotAFrame(quoted(line))
}

fn quoted(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

/// Room is reserved and not touched: a length that is announced and never sent costs nothing.
fn read_exactly(input: &mut impl BufRead, bytes: u64) -> Result<Vec<u8>, FrameError> {
    let mut content = Vec::with_capacity(bytes as usize);
    input.take(bytes).read_to_end(&mut content)?;
    if content.len() as u64 == bytes { Ok(content) } else { Err(FrameError::CutShort(String::new())) }
}

/// The header of a frame.
pub fn header(message: usize, attachment: usize) -> String {
    match attachment {
        0 => format!("Content-Length: {message}\r\n\r\n"),
        _ => format!("Content-Length: {message}\r\nAttachment-Length: {attachment}\r\n\r\n"),
    }
}

/// Writes a frame, in one call to the system where that takes it.
pub fn write_frame(output: &mut impl Write, message: &[u8], attachment: &[u8]) -> io::Result<()> {
    let header = header(message.len(), attachment.len());
    let mut parts = [IoSlice::new(header.as_bytes()), IoSlice::new(message), IoSlice::new(attachment)];
    let mut rest = &mut parts[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match output.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    output.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
        read_frame(&mut bytes)
    }

    fn frame(message: &[u8], attachment: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, message, attachment).unwrap();
        bytes
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        for (message, attachment) in
            [(&b"{}"[..], &b""[..]), (b"{}", b"\0\r\n\r\nContent-Length: 9"), (b"", b"x")]
        {
            let two = [frame(message, attachment), frame(b"next", b"")].concat();
            let mut input = &two[..];
            let first = read_frame(&mut input).unwrap().unwrap();
            assert_eq!((&first.message[..], &first.attachment[..]), (message, attachment));
            assert_eq!(read_frame(&mut input).unwrap().unwrap().message, b"next");
            assert_eq!(read_frame(&mut input).unwrap(), None);
        }
    }

    #[test]
    fn headers_are_forgiving_in_what_does_not_matter() {
        let bytes = b"content-length:2\nContent-Type: application/json\r\nATTACHMENT-LENGTH:  1 \r\n\r\n{}x";
        let frame = read(bytes).unwrap().unwrap();
        assert_eq!((&frame.message[..], &frame.attachment[..]), (&b"{}"[..], &b"x"[..]));
    }

    #[test]
    fn what_is_no_frame_is_quoted() {
        for bytes in [&b"hello world\n"[..], b"\n", b"Content-Length: many\r\n\r\n", b"\xff\xfe\n"] {
            let error = read(bytes).unwrap_err();
            assert!(matches!(error, FrameError::NotAFrame(_)), "{bytes:?}: {error:?}");
        }
        let error = read(b"hello \x1b[31mworld\n").unwrap_err().to_string();
        assert!(error.contains(r#""hello \u{1b}[31mworld\n""#), "{error}");
    }

    #[test]
    fn a_flood_is_cut_off_at_the_header() {
        let endless = vec![b'x'; 1 << 20];
        let mut input = &endless[..];
        assert!(matches!(read_frame(&mut input), Err(FrameError::NotAFrame(_))));
        assert_eq!(endless.len() - input.len(), MAX_HEADER as usize);
        let fields = b"X-Field: 1\r\n".repeat(1000);
        assert!(matches!(read(&fields), Err(FrameError::CutShort(_) | FrameError::NotAFrame(_))));
    }

    #[test]
    fn too_much_is_refused_before_it_is_read() {
        let error = read(b"Content-Length: 1073741824\r\n\r\n").unwrap_err();
        assert!(matches!(error, FrameError::TooLarge { bytes: 1_073_741_824, limit: MAX_MESSAGE, .. }));
        let error = read(b"Content-Length: 2\r\nAttachment-Length: 1073741824\r\n\r\n{}").unwrap_err();
        assert!(matches!(error, FrameError::TooLarge { limit: MAX_ATTACHMENT, .. }));
    }

    #[test]
    fn a_frame_that_ends_early_is_told_from_the_end() {
        let whole = frame(b"{}", b"tail");
        for cut in 1..whole.len() {
            let error = read(&whole[..cut]).unwrap_err();
            assert!(matches!(error, FrameError::CutShort(_)), "{cut}: {error:?}");
        }
        assert_eq!(read(b"").unwrap(), None);
        assert!(read(b"oops").unwrap_err().to_string().ends_with("after \"oops\""));
    }
}
