use proptest::prelude::*;

use super::*;

fn texts(sql: &str) -> Vec<String> {
    texts_with(sql, true)
}

fn texts_with(sql: &str, standard: bool) -> Vec<String> {
    split(sql.as_bytes(), standard).iter().map(|piece| sql[piece.range.clone()].to_owned()).collect()
}

#[test]
fn statements_end_where_the_server_ends_them() {
    for (sql, expected) in [
        ("", vec![]),
        (" ; ; -- nothing\n /* at /* all */ */ ;", vec![]),
        ("select 1; commit", vec!["select 1", "commit"]),
        ("/* a /* b */ c */ commit", vec!["commit"]),
        ("/* /* */ commit", vec![]),
        ("select ';' ; commit", vec!["select ';'", "commit"]),
        ("select 'a''; commit; --'", vec!["select 'a''; commit; --'"]),
        ("select 'a\\'; commit; --'", vec!["select 'a\\'", "commit"]),
        ("select e'a\\'; commit; --'", vec!["select e'a\\'; commit; --'"]),
        ("select E'a'\n'b\\'; commit; --'", vec!["select E'a'\n'b\\'; commit; --'"]),
        ("select E'a' -- c\n 'b\\'; commit; --'", vec!["select E'a' -- c\n 'b\\'; commit; --'"]),
        ("select E'a' 'b\\'; commit", vec!["select E'a' 'b\\'", "commit"]),
        ("select ne'a\\'; commit", vec!["select ne'a\\'", "commit"]),
        ("select U&'a\\'; commit", vec!["select U&'a\\'", "commit"]),
        ("select \"a;\"\"b\"; commit", vec!["select \"a;\"\"b\"", "commit"]),
        ("select $$ ; $$; commit", vec!["select $$ ; $$", "commit"]),
        ("select $a$ ; $$ ; $b$ ; $a$; commit", vec!["select $a$ ; $$ ; $b$ ; $a$", "commit"]),
        ("select a$b$; commit; select $b$", vec!["select a$b$", "commit", "select $b$"]),
        ("select $1; commit", vec!["select $1", "commit"]),
        ("select 1$a$;$a$; commit", vec!["select 1$a$;$a$", "commit"]),
        ("select 1 --; \r; commit", vec!["select 1", "commit"]),
        ("select 1 - -1; commit", vec!["select 1 - -1", "commit"]),
        ("select 2*/* ; */3; commit", vec!["select 2*/* ; */3", "commit"]),
        ("select 'ü;' as \"ß;\"; commit", vec!["select 'ü;' as \"ß;\"", "commit"]),
        (
            "create rule r as on insert to t do also (delete from a; delete from b); commit",
            vec!["create rule r as on insert to t do also (delete from a; delete from b)", "commit"],
        ),
        ("select $é$ ; $é$; commit", vec!["select $é$ ; $é$", "commit"]),
    ] {
        assert_eq!(texts(sql), expected, "{sql}");
    }
}

#[test]
fn bodies_of_functions_are_part_of_them_and_end_where_they_end() {
    let body = "create or replace function f() returns int begin atomic select 1; select case when true then 2 end; end";
    assert_eq!(texts(&format!("{body}; commit")), [body, "commit"]);
    let empty = "CREATE PROCEDURE p() BEGIN ATOMIC END";
    assert_eq!(texts(&format!("{empty}; end")), [empty, "end"]);
    // `begin` and `case` may be names of columns here; neither opens anything.
    let names = "create function f() returns int begin atomic select 1 begin; select 2 case; end";
    assert_eq!(texts(&format!("{names}; end; commit")), [names, "end", "commit"]);
    let parameter = "create function f(begin atomic) returns int as 'select 1' language sql";
    assert_eq!(texts(&format!("{parameter}; commit")), [parameter, "commit"]);
    assert_eq!(texts("begin; atomic; commit"), ["begin", "atomic", "commit"]);
}

#[test]
fn old_strings_are_read_the_old_way() {
    let sql = "select 'a\\'; commit; --'; rollback";
    assert_eq!(texts_with(sql, true), ["select 'a\\'", "commit"]);
    assert_eq!(texts_with(sql, false), ["select 'a\\'; commit; --'", "rollback"]);
    assert!(depends_on_strings(sql.as_bytes()));
    assert!(!depends_on_strings(b"select E'\\'; commit'"));
    assert!(!depends_on_strings(b"select '; commit'"));
}

#[test]
fn names_are_decoded() {
    let name = |sql: &str| split(sql.as_bytes(), true)[0].tokens[0].token.clone();
    assert_eq!(name("CoMMit"), Token::Word("commit".into()));
    assert_eq!(name("\"A\"\"b\""), Token::Quoted("A\"b".into()));
    assert_eq!(name("U&\"s\\0061nd\\+000062\""), Token::Quoted("sandb".into()));
    assert_eq!(name("u&\"a\\\\b\""), Token::Quoted("a\\b".into()));
}

/// Wrappings in which SQL is no SQL.
fn hidden() -> impl Strategy<Value = String> {
    let inner = prop_oneof![
        Just("; commit ;"),
        Just("commit"),
        Just(";"),
        Just("a"),
        Just(" "),
        Just("\n;rollback;")
    ];
    (0usize..7, proptest::collection::vec(inner, 0..4)).prop_map(|(way, parts)| {
        let text = parts.concat();
        match way {
            0 => format!("/* {text} */"),
            1 => format!("/* {text} /* {text} */ {text} */"),
            2 => format!("-- {}\n", text.replace('\n', " ")),
            3 => format!("'{text}'''"),
            4 => format!("E'{text}\\'{text}'"),
            5 => format!("$q$ {text} $$ {text} $q$"),
            _ => format!("\"{text}\"\"\""),
        }
    })
}

proptest! {
    #[test]
    fn what_is_hidden_is_never_found_and_what_is_not_always(
        before in proptest::collection::vec(hidden(), 0..6),
        after in proptest::collection::vec(hidden(), 0..6),
    ) {
        let (before, after) = (before.join(" a "), after.join(" a "));
        let commits = |sql: &str| {
            split(sql.as_bytes(), true).iter().filter(|piece| leading_words(&piece.tokens) == ["commit"]).count()
        };
        prop_assert_eq!(commits(&format!("x {} {}", &before, &after)), 0);
        let found = format!("x {before} ; /* {} */ commit ; y {after}", "/* */");
        prop_assert_eq!(commits(&found), 1, "{}", found);
    }

    #[test]
    fn any_bytes_are_taken_apart_without_a_panic(bytes: Vec<u8>, standard: bool) {
        for piece in split(&bytes, standard) {
            prop_assert!(piece.range.end <= bytes.len());
        }
    }

    #[test]
    fn any_mixture_of_signs_is_taken_apart(sql in "[-'\"$;/*\\\\eEuU&a1\n ().]{0,40}", standard: bool) {
        let pieces = split(sql.as_bytes(), standard);
        let ends: Vec<usize> = pieces.iter().flat_map(|piece| [piece.range.start, piece.range.end]).collect();
        prop_assert!(ends.is_sorted());
        prop_assert!(ends.iter().all(|end| *end <= sql.len()));
    }
}
