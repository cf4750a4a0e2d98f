#![allow(clippy::unwrap_used)]
use super::*;

fn texts(script: &str) -> Vec<String> {
    texts_in(script, Mode::default())
}

fn texts_in(script: &str, mode: Mode) -> Vec<String> {
    let mut script = Script::new(script);
    std::iter::from_fn(|| script.next(mode).unwrap()).map(|statement| statement.text).collect()
}

#[test]
fn statements_end_where_the_server_says() {
    for (script, expected) in [
        ("a; b", vec!["a", "b"]),
        ("a;;b;", vec!["a", "b"]),
        ("", vec![]),
        ("-- nothing\n# at all\n/* here */", vec![]),
        ("select ';'; b", vec!["select ';'", "b"]),
        (r"select '\';'; b", vec![r"select '\';'", "b"]),
        (r#"select "\";"; b"#, vec![r#"select "\";""#, "b"]),
        ("select 'it''s;'; b", vec!["select 'it''s;'", "b"]),
        ("select `a;``b`; b", vec!["select `a;``b`", "b"]),
        ("select 1 -- a; b\n; c", vec!["select 1 -- a; b", "c"]),
        ("select 1--1; c", vec!["select 1--1", "c"]),
        ("select 1 # a; b\n; c", vec!["select 1 # a; b", "c"]),
        ("select /* a; /* b */ 1; c", vec!["select /* a; /* b */ 1", "c"]),
        ("/*!50001 a; b */; c", vec!["/*!50001 a; b */", "c"]),
        ("DELIMITER ;;\na; b;;\ndelimiter ;\nc;", vec!["a; b", "c"]),
        ("delimiter //\na; b//c", vec!["a; b", "c"]),
        ("a; # more\n/* and */ -- more\n delimiter //\nb; c//", vec!["a", "b; c"]),
        ("ä 'ö;ü'; c", vec!["ä 'ö;ü'", "c"]),
    ] {
        assert_eq!(texts(script), expected, "{script}");
    }
}

#[test]
fn the_mode_of_the_session_changes_what_a_quote_is() {
    let no_backslash = Mode::of("STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES");
    assert_eq!(texts_in(r"select '\'; b", no_backslash), [r"select '\'", "b"]);
    let ansi = Mode::of("ANSI_QUOTES");
    let statement = Script::new(r#"select "a\"; b"#).next(ansi).unwrap().unwrap();
    assert_eq!(statement.tokens()[1], Token::Name(r"a\".to_owned()));
}

#[test]
fn an_executable_comment_has_two_readings() {
    let statement = Script::new("/*!99999 select */ commit").next(Mode::default()).unwrap().unwrap();
    let words = |tokens: Vec<Token>| tokens.iter().filter_map(Token::name).collect::<Vec<_>>();
    assert_eq!(words(statement.tokens()), ["select", "commit"]);
    assert_eq!(words(statement.bare_tokens()), ["commit"]);
    assert_eq!(statement.conditional, 1);
    let statement = Script::new("/*M!100100 begin */").next(Mode::default()).unwrap().unwrap();
    assert_eq!(words(statement.tokens()), ["begin"]);
}

#[test]
fn what_is_not_closed_is_an_error() {
    for script in ["select 'a", "select `a", "/* a", "/*! a", "delimiter \n"] {
        assert!(Script::new(script).next(Mode::default()).is_err(), "{script}");
    }
}

proptest::proptest! {
    #[test]
    fn nothing_makes_it_panic_or_loop(script in r#"[ab;'"`\\/*!#\-ä\n ]{0,60}"#) {
        let mut script = Script::new(&script);
        while let Ok(Some(statement)) = script.next(Mode::default()) {
            assert!(!statement.is_empty());
        }
    }
}
