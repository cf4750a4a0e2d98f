//! The head of an HTTP request, read strictly: whatever two programs could understand differently is refused.

/// The head of a request to a proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    method: &'a str,
    version: &'a str,
    fields: Vec<(&'a str, &'a [u8])>,
    pub(super) form: Form<'a>,
}

/// The two forms in which a proxy is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form<'a> {
    /// `CONNECT host:port`.
    Tunnel {
        /// `host:port`.
        authority: &'a [u8],
    },
    /// `GET http://host:port/path`.
    Absolute {
        /// `host` or `host:port`.
        authority: &'a [u8],
        /// What follows, from the path on; it may be empty.
        path: &'a [u8],
    },
}

/// How far a head has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It goes on.
    Incomplete,
    /// It has so many bytes, with the empty line at its end.
    Complete(usize),
    /// It has something in it that no head has.
    Malformed(&'static str),
}

/// Looks for the end of a head in `bytes`, of which the first `seen` were looked at before.
pub(super) fn progress(bytes: &[u8], seen: usize) -> Progress {
    for at in seen.saturating_sub(3)..bytes.len() {
        match bytes[at] {
            0 => return Progress::Malformed("there is a NUL in it"),
            b'\n' if at == 0 || bytes[at - 1] != b'\r' => {
                return Progress::Malformed("a line ends without a carriage return");
            }
            b'\n' if bytes[..=at].ends_with(b"\r\n\r\n") => return Progress::Complete(at + 1),
            b'\r' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => {
                return Progress::Malformed("a carriage return does not end a line");
            }
            _ => {}
        }
    }
    Progress::Incomplete
}

/// Reads a complete head. The error is what is wrong with it, as half a sentence.
pub(super) fn parse(head: &[u8]) -> Result<Head<'_>, &'static str> {
    let head = head.strip_suffix(b"\r\n\r\n").ok_or("it has no end")?;
    let mut lines = split_lines(head);
    let (method, target, version) = request_line(lines.next().unwrap_or_default())?;
    let fields = lines.map(field).collect::<Result<Vec<_>, _>>()?;
    check_framing(version, &fields)?;
    let form = if method == "CONNECT" { Form::Tunnel { authority: target } } else { absolute(target)? };
    Ok(Head { method, version, fields, form })
}

fn split_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

fn request_line(line: &[u8]) -> Result<(&str, &[u8], &str), &'static str> {
    let wrong = "the first line is no request";
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong);
    };
    if target.is_empty() || target.iter().any(|byte| byte.is_ascii_control()) {
        return Err(wrong);
    }
    match version {
        b"HTTP/1.1" => Ok((token(method).ok_or(wrong)?, target, "HTTP/1.1")),
        b"HTTP/1.0" => Ok((token(method).ok_or(wrong)?, target, "HTTP/1.0")),
        _ => Err("only HTTP/1.0 and HTTP/1.1 are spoken here"),
    }
}

/// A word of the characters that methods and names of fields are made of.
fn token(word: &[u8]) -> Option<&str> {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    (!word.is_empty() && word.iter().all(fits)).then(|| std::str::from_utf8(word).ok())?
}

fn field(line: &[u8]) -> Result<(&str, &[u8]), &'static str> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err("a field goes on in a second line");
    }
    let colon = line.iter().position(|byte| *byte == b':').ok_or("a field has no colon")?;
    let name = token(&line[..colon]).ok_or("a field has no proper name")?;
    let value = line[colon + 1..].trim_ascii();
    if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err("a field has a control character in it");
    }
    Ok((name, value))
}

/// Where one program sees the end of a request and another does not, the second sees two.
fn check_framing(version: &str, fields: &[(&str, &[u8])]) -> Result<(), &'static str> {
    let count = |name: &str| fields.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name)).count();
    let (lengths, encodings) = (count("Content-Length"), count("Transfer-Encoding"));
    if count("Host") > 1 {
        return Err("it names more than one host");
    }
    if encodings > 0 && version == "HTTP/1.0" {
        return Err("HTTP/1.0 knows no encoding of transfers");
    }
    if lengths > 1 || encodings > 1 || lengths + encodings > 1 {
        return Err("it says more than once how long it is");
    }
    let wrong = fields.iter().any(|(name, value)| match () {
        () if name.eq_ignore_ascii_case("Content-Length") => {
            value.is_empty() || !value.iter().all(u8::is_ascii_digit)
        }
        () if name.eq_ignore_ascii_case("Transfer-Encoding") => !value.eq_ignore_ascii_case(b"chunked"),
        () => false,
    });
    if wrong { Err("it does not say properly how long it is") } else { Ok(()) }
}

fn absolute(target: &[u8]) -> Result<Form<'_>, &'static str> {
    let scheme = b"http://";
    match target.get(..scheme.len()) {
        Some(start) if start.eq_ignore_ascii_case(scheme) => {}
        _ if target.starts_with(b"/") => {
            return Err("this is a proxy, and wants to be asked for a whole URL");
        }
        _ => return Err("it asks for something else than http://; for https use CONNECT"),
    }
    if target.contains(&b'#') {
        return Err("a URL in a request has no fragment");
    }
    let rest = &target[scheme.len()..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    Ok(Form::Absolute { authority, path })
}

impl Head<'_> {
    /// The head as the host itself is to see it: with the path alone, the host that was checked, and the end of the connection with the
    /// end of the answer. How long the body is stays as it was, since the body does.
    pub(super) fn for_origin(&self, path: &[u8], host: &str) -> Vec<u8> {
        let listed = self.listed_by_connection();
        let mut head = Vec::new();
        let path: &[&[u8]] = match path.first() {
            None if self.method == "OPTIONS" => &[b"*"],
            None => &[b"/"],
            Some(b'/') => &[path],
            Some(_) => &[b"/", path],
        };
        head.extend_from_slice(format!("{} ", self.method).as_bytes());
        head.extend_from_slice(&path.concat());
        head.extend_from_slice(format!(" {}\r\nHost: {host}\r\n", self.version).as_bytes());
        for (name, value) in self.fields.iter().filter(|(name, _)| is_for_origin(name, &listed)) {
            head.extend_from_slice(format!("{name}: ").as_bytes());
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"Connection: close\r\n\r\n");
        head
    }

    /// The fields that were meant for this proxy only, by the client's own words.
    fn listed_by_connection(&self) -> Vec<Vec<u8>> {
        let connection = self.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("Connection"));
        let words = connection.flat_map(|(_, value)| value.split(|byte| *byte == b','));
        words.map(|word| word.trim_ascii().to_ascii_lowercase()).collect()
    }
}

fn is_for_origin(name: &str, listed: &[Vec<u8>]) -> bool {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "host" | "connection" | "keep-alive" | "te" | "upgrade" => false,
        // They describe the body, which is passed on as it is, whatever the client lists.
        "content-length" | "transfer-encoding" => true,
        name => !name.starts_with("proxy-") && !listed.iter().any(|word| word == name.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rewritten(head: &str) -> String {
        let parsed = parse(head.as_bytes()).unwrap();
        let Form::Absolute { path, .. } = parsed.form else { panic!("{parsed:?}") };
        String::from_utf8(parsed.for_origin(path, "checked")).unwrap()
    }

    #[test]
    fn a_tunnel_is_asked_for_by_host_and_port() {
        let head = parse(b"CONNECT a:443 HTTP/1.1\r\nHost: b\r\n\r\n").unwrap();
        assert_eq!(head.form, Form::Tunnel { authority: b"a:443" });
    }

    #[test]
    fn a_url_is_taken_apart() {
        for (url, authority, path) in [
            ("http://a/b?c", "a", "/b?c"),
            ("HTTP://a:81", "a:81", ""),
            ("http://[::1]:8?q", "[::1]:8", "?q"),
            ("http:///b", "", "/b"),
            ("http://u:p@a/", "u:p@a", "/"),
        ] {
            let text = format!("GET {url} HTTP/1.0\r\n\r\n");
            let (authority, path) = (authority.as_bytes(), path.as_bytes());
            assert_eq!(parse(text.as_bytes()).unwrap().form, Form::Absolute { authority, path });
        }
    }

    #[test]
    fn the_host_sees_its_own_name_and_nothing_that_was_for_the_proxy() {
        let head = "POST http://a/b HTTP/1.1\r\nHost: evil\r\nProxy-Authorization: x\r\nproxy-connection: y\r\n\
                    Connection: keep-alive, X-Mine, content-length\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
                    Upgrade: h2c\r\nContent-Length: 3\r\nX-Other: \t2 \r\n\r\n";
        let expected = "POST /b HTTP/1.1\r\nHost: checked\r\nContent-Length: 3\r\nX-Other: 2\r\nConnection: close\r\n\r\n";
        assert_eq!(rewritten(head), expected);
    }

    #[test]
    fn a_path_that_is_missing_is_made_up() {
        let first = |head: &str| rewritten(head).lines().next().unwrap().to_owned();
        assert_eq!(first("GET http://a HTTP/1.0\r\n\r\n"), "GET / HTTP/1.0");
        assert_eq!(first("GET http://a?b HTTP/1.1\r\n\r\n"), "GET /?b HTTP/1.1");
        assert_eq!(first("OPTIONS http://a HTTP/1.1\r\n\r\n"), "OPTIONS * HTTP/1.1");
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for fields in [
            "Host: a\r\nhost: b\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\ntransfer-encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length:\r\n",
            "X: a\r\n b\r\n",
            "X: a\r\n\tb\r\n",
            "X : a\r\n",
            ": a\r\n",
            "X\r\n",
            "X: a\x0bb\r\n",
            "X\u{e9}: a\r\n",
        ] {
            let head = format!("GET http://a/ HTTP/1.1\r\n{fields}\r\n");
            assert!(parse(head.as_bytes()).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn first_lines_that_are_no_request_are_refused() {
        for line in [
            "",
            " ",
            "GET",
            "GET http://a/",
            "GET  http://a/ HTTP/1.1",
            "GET http://a/ HTTP/1.1 ",
            "GET http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked",
            "GET http://a/ HTTP/2.0",
            "GET http://a/ http/1.1",
            "GET / HTTP/1.1",
            "GET a HTTP/1.1",
            "GET https://a/ HTTP/1.1",
            "GET ftp://a/ HTTP/1.1",
            "G(T http://a/ HTTP/1.1",
            "GET http://a/#b HTTP/1.1",
            "GET http://a\t/ HTTP/1.1",
            "PRI * HTTP/2.0",
        ] {
            assert!(parse(format!("{line}\r\n\r\n").as_bytes()).is_err(), "{line:?}");
        }
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        assert_eq!(progress(b"GET a\r\nb: c\r\n\r\nrest", 0), Progress::Complete(15));
        assert_eq!(progress(b"GET a\r\nb: c\r\n\r", 0), Progress::Incomplete);
        assert_eq!(progress(b"GET a\r\nb: c\r\n\r\n", 14), Progress::Complete(15));
        for bad in [&b"a\n"[..], b"\n", b"a\rb", b"a\0", b"a\r\n\n", b"\r\r"] {
            assert!(matches!(progress(bad, 0), Progress::Malformed(_)), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_upset_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (progress(&bytes, 0), parse(&bytes));
        }

        #[test]
        fn what_is_passed_on_is_one_head_with_one_host(
            method in "(GET|POST|CONNECT|[!-~]{0,5})",
            url in "(http://)?[ -~\\x80-\\xff]{0,20}",
            fields in "((Host|Content-Length|Transfer-Encoding|Connection|X|[\\x00-\\xff]{0,4})[: \t]{1,3}[\\x00-\\x7f]{0,8}(\r\n|\n|\r){1,2}){0,4}",
        ) {
            let text = format!("{method} {url} HTTP/1.1\r\n{fields}\r\n");
            if let Progress::Complete(length) = progress(text.as_bytes(), 0) && let Ok(head) = parse(&text.as_bytes()[..length])
                && let Form::Absolute { path, .. } = head.form {
                let out = head.for_origin(path, "checked");
                prop_assert_eq!(progress(&out, 0), Progress::Complete(out.len()));
                let text = String::from_utf8_lossy(&out).to_ascii_lowercase();
                prop_assert_eq!(text.matches("\r\nhost:").count(), 1);
                prop_assert_eq!(text.matches("\r\nconnection:").count(), 1);
            }
        }

        #[test]
        fn it_does_not_matter_in_which_pieces_a_head_comes(bytes in "[a\r\n]{0,12}", cut in 0_usize..12) {
            let bytes = bytes.as_bytes();
            let first = progress(&bytes[..cut.min(bytes.len())], 0);
            if first == Progress::Incomplete {
                prop_assert_eq!(progress(bytes, cut.min(bytes.len())), progress(bytes, 0));
            }
        }
    }
}
