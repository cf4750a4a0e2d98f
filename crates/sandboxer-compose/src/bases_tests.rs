#![allow(clippy::unwrap_used)]
use serde_json::json;

use super::*;

/// The images, joined by spaces; or the line in doubt and why.
fn images(text: &str, given: Value) -> Result<String, String> {
    let fits = |name: &str| {
        let odd = |letter: char| !(letter.is_ascii_alphanumeric() || "./:-_@".contains(letter));
        !name.is_empty() && !name.contains(odd) && !name.starts_with("docker-archive:")
    };
    let found = Bases::read(text).images(&given, fits);
    found
        .map(|names| names.into_iter().collect::<Vec<_>>().join(" "))
        .map_err(|fetch| format!("{}: {}", fetch.line, fetch.what))
}

#[test]
fn images_are_told_from_stages() {
    let table = [
        ("FROM alpine:3\nCOPY . /app\n", "alpine:3"),
        (
            "# x\n\nfrom --platform=linux/amd64 ghcr.io/a/b@sha256:01 as Build\nFROM build\nFROM scratch\n",
            "ghcr.io/a/b@sha256:01",
        ),
        (
            "FROM a AS one\nFROM b\nCOPY --from=one /x /\nCOPY --chown=a:b --from=c:1 /x /\nCOPY --from=0 /x /",
            "a b c:1",
        ),
        ("FROM a\nRUN --mount=type=cache,target=/x --mount=type=bind,From=img,target=/y make\n", "a img"),
        ("FROM a\nONBUILD COPY --from=b /x /\n", "a b"),
        // A stage hides only what comes after it, and not itself.
        ("FROM x AS x\nFROM x\n", "x"),
        ("FROM later\nFROM a AS later\n", "a later"),
        ("FR\\\n# said\n\nOM al\\\npine\n", "alpine"),
        ("FROM \"alpine\"\nFROM al\\pine:1\n", "alpine alpine:1"),
        ("\u{feff}FROM a\n", "a"),
        ("FROM a\r\nRUN x \\\r\n  FROM b\r\n", "a"),
        // Words of other programs.
        ("FROM a\nRUN psql -c 'SELECT x \\\n  FROM users'\nRUN x \\\n  FROM users\n", "a"),
        ("FROM a\nRUN <<EOF\nfrom os import path\nFROM users;\nEOF\n", "a"),
    ];
    for (text, expected) in table {
        assert_eq!(images(text, json!({})), Ok(expected.to_owned()), "{text:?}");
    }
}

#[test]
fn arguments_before_the_first_image_count_and_no_others() {
    let table = [
        ("ARG V=3.20\nFROM alpine:$V\n", "alpine:3.20"),
        ("ARG V=\"3\"\nARG I='alpine':${V}\nFROM ${I}-x\n", "alpine:3-x"),
        ("ARG G=1\nFROM alpine:$G\n", "alpine:given"),
        ("ARG G\nFROM alpine:$G\n", "alpine:given"),
        ("ARG X\nFROM ${X:-alpine}\n", "alpine"),
        ("ARG A=1 B=2\nFROM a:$A$B\n", "a:12"),
        ("ARG A=1\nARG A=2\nFROM a:$A\nARG A=3\nFROM b:${A}\n", "a:2 b:2"),
        ("ARG ODD=${A%x}\nFROM a\n", "a"),
    ];
    for (text, expected) in table {
        assert_eq!(images(text, json!({"G": "given"})), Ok(expected.to_owned()), "{text:?}");
    }
}

#[test]
fn what_only_some_engines_take_for_an_image_counts_and_for_a_stage_does_not() {
    let table = [
        ("FROM a\nRUN <<E\nFROM evil\nE\n", "a evil"),
        ("FROM a\nRUN <<E\nFROM x AS evil\nE\nFROM evil\n", "a evil x"),
        ("FROM a\nRUN <<-E\nx\n\tE\nFROM x AS fine\nFROM fine\n", "a x"),
        ("FROM a\nRUN <<E\n\tE\nFROM x AS evil\nE\nFROM evil\n", "a evil x"),
        ("FROM a\nRUN <<E\nx \\\nE\nFROM b AS c\nFROM c\n", "a b"),
        ("FROM a\nRUN <<A <<'B'\nA\nFROM x AS evil\nB\nFROM evil\n", "a evil x"),
        ("FROM a\nRUN cat <<E > /x && echo \"y\"\nFROM x AS evil\nE\nFROM evil\n", "a evil x"),
        ("FROM a\nRUN <<\\\nE\nFROM x AS evil\nE\nFROM evil\n", "a evil x"),
        ("FROM a\nCMD cat <<E\nFROM b AS c\nFROM c\n", "a b"),
    ];
    for (text, expected) in table {
        assert_eq!(images(text, json!({})), Ok(expected.to_owned()), "{text:?}");
    }
}

#[test]
fn what_is_in_doubt_is_not_built_without_a_network() {
    let table = [
        ("FROM $X\n", "1: the name of an image that"),
        ("FROM evil${G}\n", "1: the name of an image that"),
        ("ARG X\nFROM a:$X\n", "2: the name of an image that"),
        ("ARG V=1\nFROM a:${V%x}\n", "2: the name of an image that"),
        ("ARG V=1\nFROM a:${V:-${W}}\n", "2: the name of an image that"),
        ("ARG V-x=ok\nFROM ${V-x}\n", "2: the name of an image that"),
        ("FROM a\nARG V=1\nFROM a:$V\n", "3: the name of an image that"),
        ("ARG B=evil X=\" B=ok\"\nFROM $B\n", "1: an `ARG` whose end"),
        ("ARG B=evil\nARG B\nFROM $B\n", "2: an `ARG` that is declared twice"),
        ("FROM docker-archive:./x.tar\n", "1: what is not the name"),
        ("FROM a\nRUN <<E\nFROM docker-archive:./x.tar\nE\n", "3: what is not the name"),
        ("FROM a\nCOPY --from=$X / /\n", "2: a variable in place"),
        ("FROM a\nRUN --mount=type=bind,fr\"om\"=x true\n", "2: an option in quotes"),
        ("FROM a\nRUN echo \\\\\nFROM b\n", "2: two backslashes"),
        ("FROM a\nRUN 'x <<E y'\nFROM x AS evil\nE\nFROM evil\n", "2: `<<` in a form"),
        ("FROM a\nRUN \"'\"' <<E '\"'\"\nE\n", "2: `<<` in a form"),
        ("FROM a\nRUN <<'E\\'\nE\\\nFROM evil\n", "2: `<<` in a form"),
        ("FROM a\nONBUILD RUN <<E\nE\n", "2: `<<` in a form"),
        ("FROM a\nRUN <<E\nE\r\nE\n", "2: a script with carriage"),
    ];
    for (text, expected) in table {
        let found = images(text, json!({"G": "given"}));
        assert!(found.as_ref().is_err_and(|said| said.starts_with(expected)), "{text:?}: {found:?}");
    }
}

#[test]
fn a_large_file_is_not_read_forever() {
    for line in ["R\\\n", "FROM a \\\n", "RUN <<E\n", "RUN <<E\nE\n", "<<\nRUN x \\\n", "FROM a <<\n"] {
        let _ = images(&line.repeat((1 << 20) / line.len()), json!({}));
    }
    let runs = format!("<<\n{}", format!("{}\n", "R\\\n".repeat(999)).repeat(300));
    assert!(images(&runs, json!({})).is_err());
}
