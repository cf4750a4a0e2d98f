use proptest::prelude::*;

use super::*;

#[test]
fn what_json_can_say_exactly_it_says() {
    for (oid, text, value) in [
        (BOOL, "t", json!(true)),
        (BOOL, "f", json!(false)),
        (INT8, "-9223372036854775808", json!(i64::MIN)),
        (INT2, "7", json!(7)),
        (OID, "4294967295", json!(4_294_967_295_u32)),
        (FLOAT8, "1.5", json!(1.5)),
        (FLOAT8, "1e+300", json!(1e300)),
        (FLOAT8, "NaN", json!("NaN")),
        (FLOAT8, "-Infinity", json!("-Infinity")),
        (BYTEA, "\\x00ff", json!({"b64": "AP8="})),
        (1700, "12345678901234567890.10", json!("12345678901234567890.10")),
        (3802, "{\"a\": 1}", json!("{\"a\": 1}")),
        (25, "7", json!("7")),
    ] {
        assert_eq!(to_json(oid, Some(text)), value, "{text}");
    }
    assert_eq!(to_json(INT4, None), Value::Null);
}

#[test]
fn values_become_literals_of_their_type() {
    for (value, type_name, expected) in [
        (json!(null), "integer", "NULL::integer"),
        (json!(7), "integer", "'7'::integer"),
        (json!(true), "boolean", "'true'::boolean"),
        (json!("o'clock"), "text", "'o''clock'::text"),
        (json!("a\\'; drop"), "text", " E'a\\\\''; drop'::text"),
        (json!({"b64": "AP8="}), "bytea", " E'\\\\x00ff'::bytea"),
        (json!({"a": [1]}), "jsonb", "'{\"a\":[1]}'::jsonb"),
    ] {
        assert_eq!(from_json(&value, type_name).unwrap(), expected);
    }
    assert!(from_json(&json!("a\0b"), "text").is_err());
    assert!(from_json(&json!({"b64": "!"}), "bytea").is_err());
    assert_eq!(from_key("AP8=", "bytea").unwrap(), " E'\\\\x00ff'::bytea");
    assert_eq!(ident("we\"ird"), "\"we\"\"ird\"");
}

proptest! {
    #[test]
    fn a_literal_never_ends_early(text in "[a'\\\\\"$-]{0,20}") {
        let quoted = literal(&text);
        let body = quoted.trim_start().trim_start_matches('E');
        let inner = &body[1..body.len() - 1];
        let inner = inner.replace("\\\\", "").replace("''", "");
        prop_assert!(!inner.contains('\'') && !inner.contains('\\'));
    }
}
