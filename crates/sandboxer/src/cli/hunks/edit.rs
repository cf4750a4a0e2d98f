//! A hunk in an editor: what the person is given, and what is made of what comes back.

use super::Purpose;

const HEAD: &str = "\
# Edit this hunk, then save and leave the editor.
# What to do is at the bottom.
#
#
#
";

/// The text for the editor. Editors take commands from the first and last lines of a file (`vim:` and the like), and
/// what is in the hunk is anybody's: so there are comments of ours before and after it.
pub fn text_for_editor(hunk: &[u8], purpose: Purpose) -> Vec<u8> {
    [HEAD.as_bytes(), hunk, guide(purpose).as_bytes()].concat()
}

fn guide(purpose: Purpose) -> String {
    let how = match purpose {
        Purpose::Commit => {
            "# To leave a '-' line out, make it unchanged: put a space in place of the '-'.\n\
             # To leave a '+' line out, delete it.\n"
        }
        Purpose::Discard => {
            "# To leave a '+' line out, make it unchanged: put a space in place of the '+'.\n\
             # To leave a '-' line out, delete it.\n"
        }
    };
    let (what, end) = match purpose {
        Purpose::Commit => ("committed", "What you leave out stays pending in the sandbox."),
        Purpose::Discard => ("thrown away", "What you leave out stays in the sandbox."),
    };
    format!(
        "# ---\n# What is left of this hunk will be {what}. {end}\n{how}\
         # The numbers after @@ need not be right. Lines that begin with # are removed.\n\
         # If it does not apply, you are asked again. Without any lines, nothing happens.\n"
    )
}

/// What comes back from the editor, without our comments: a hunk, or `None` where nothing of it is left. A header that was
/// lost is put back.
pub fn read_back(edited: &[u8], hunk: &[u8]) -> Option<Vec<u8>> {
    let lines = edited.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#"));
    let mut text = lines.collect::<Vec<_>>().concat();
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    let is_line = |line: &[u8]| matches!(line.first(), Some(b' ' | b'+' | b'-'));
    if !text.split(|byte| *byte == b'\n').any(is_line) {
        return None;
    }
    if !text.starts_with(b"@@") {
        let header = hunk.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
        text = [header, &text].concat();
    }
    Some(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const HUNK: &[u8] = b"@@ -1 +1 @@\n-a\n+b\n";

    #[test]
    fn what_was_not_edited_comes_back_as_it_was() {
        for purpose in [Purpose::Commit, Purpose::Discard] {
            assert_eq!(read_back(&text_for_editor(HUNK, purpose), HUNK).unwrap(), HUNK);
        }
    }

    #[test]
    fn our_comments_keep_the_hunk_from_the_ends_of_the_file() {
        let text = String::from_utf8(text_for_editor(HUNK, Purpose::Commit)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[..5].iter().all(|line| line.starts_with('#')));
        assert!(lines[lines.len() - 5..].iter().all(|line| line.starts_with('#')));
    }

    #[test]
    fn nothing_left_is_nothing_and_a_lost_header_is_found() {
        assert_eq!(read_back(b"# only comments\n", HUNK), None);
        assert_eq!(read_back(b"", HUNK), None);
        assert_eq!(read_back(b"@@ -1 +1 @@\n\n", HUNK), None);
        assert_eq!(read_back(b"-a\n+c", HUNK).unwrap(), b"@@ -1 +1 @@\n-a\n+c\n");
    }
}
