//! JSON-RPC 2.0, as far as both sides need it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::frame::Frame;

/// The version of the wire protocol.
pub const PROTOCOL: u64 = 1;

/// The first request.
pub const INITIALIZE: &str = "initialize";

/// JSON-RPC's codes that are used here.
pub mod code {
    /// Not JSON.
    pub const PARSE: i64 = -32700;
    /// Not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const NO_METHOD: i64 = -32601;
    /// Parameters of the wrong shape.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The method failed; `data.kind` says how.
    pub const FAILED: i64 = -32000;
}

const VERSION: &str = "2.0";

/// Conflicts are listed in errors, path by path.
const LONGEST_ERROR: usize = 1 << 20;

/// An error as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    /// One of [`code`].
    pub code: i64,
    /// For people.
    pub message: String,
    /// For programs: `kind`, and what belongs to it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: Value::Null }
    }
}

/// The bytes of a request.
pub fn request(id: u64, method: &str, params: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Request<'a, P> {
        jsonrpc: &'static str,
        id: u64,
        method: &'a str,
        params: &'a P,
    }
    serde_json::to_vec(&Request { jsonrpc: VERSION, id, method, params })
}

/// The bytes of an answer.
pub fn response(id: &Value, outcome: Result<Value, RpcError>) -> Vec<u8> {
    let message = match outcome {
        Ok(result) => json!({"jsonrpc": VERSION, "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": VERSION, "id": id, "error": error}),
    };
    message.to_string().into_bytes()
}

/// A request as the serving side reads it.
#[derive(Debug, Deserialize)]
pub struct Incoming {
    /// Absent in a notification.
    #[serde(default)]
    pub id: Value,
    /// Which method.
    pub method: String,
    /// By name.
    #[serde(default)]
    pub params: Value,
}

/// What a plugin said.
#[derive(Debug)]
pub enum Heard {
    /// An answer to a request of ours. A result stays text until somebody knows what it should be: as a tree it would take many
    /// times the room.
    Answer(u64, Result<Box<RawValue>, RpcError>),
    /// A notification: nothing that anybody waits for.
    Notification,
}

/// Reads a message of a plugin; an error says what is wrong with it.
pub fn hear(frame: &Frame) -> Result<Heard, String> {
    #[derive(Deserialize)]
    struct Message<'a> {
        jsonrpc: String,
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        method: Option<Cow<'a, str>>,
        result: Option<Box<RawValue>>,
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let message: Message<'_> = serde_json::from_slice(&frame.message)
        .map_err(|error| format!("it sent what is no JSON-RPC: {error}"))?;
    if message.jsonrpc != VERSION {
        return Err(format!("it speaks JSON-RPC {:?}, not {VERSION}", message.jsonrpc));
    }
    let id = message.id.and_then(|id| id.get().parse().ok());
    let error = message.error.map(read_error);
    match (message.method, id, error) {
        (Some(_), None, _) => Ok(Heard::Notification),
        (Some(method), Some(_), _) => Err(format!("it sent a request of its own, {:?}", beginning(&method))),
        (None, Some(id), Some(error)) => Ok(Heard::Answer(id, Err(error))),
        (None, Some(id), None) => Ok(Heard::Answer(id, Ok(message.result.unwrap_or_else(nothing)))),
        // What it could not read it cannot name.
        (None, None, Some(error)) => Err(format!("it could not read a request: {}", error.message)),
        (None, None, None) => {
            let id = message.id.map_or("null", |id| beginning(id.get()));
            Err(format!("it answered with the id {id}, which is none of ours"))
        }
    }
}

/// An error that is larger than any error needs to be is told without what belongs to it.
fn read_error(raw: &RawValue) -> RpcError {
    if raw.get().len() > LONGEST_ERROR {
        return RpcError::new(
            code::FAILED,
            format!("an error of {} bytes: {}", raw.get().len(), beginning(raw.get())),
        );
    }
    let odd = |_| RpcError::new(code::FAILED, format!("an error that is none: {}", beginning(raw.get())));
    serde_json::from_str(raw.get()).unwrap_or_else(odd)
}

/// Enough of a text to recognise it.
fn beginning(text: &str) -> &str {
    let end = text.char_indices().nth(100).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

fn nothing() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Result<Heard, String> {
        hear(&Frame { message: text.as_bytes().to_vec(), attachment: Vec::new() })
    }

    fn result(text: &str) -> String {
        match heard(text).unwrap() {
            Heard::Answer(3, Ok(result)) => result.get().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_are_results_or_errors() {
        assert_eq!(result(r#"{"jsonrpc":"2.0","id":3,"result":{"a":1}}"#), r#"{"a":1}"#);
        assert_eq!(result(r#"{"jsonrpc":"2.0","id":3,"result":null}"#), "null");
        assert_eq!(result(r#"{"jsonrpc":"2.0","id":3}"#), "null");
        let endless =
            format!(r#"{{"jsonrpc":"2.0","id":3,"error":{{"code":1,"message":"{}"}}}}"#, "x".repeat(2 << 20));
        assert!(
            matches!(heard(&endless).unwrap(), Heard::Answer(3, Err(error)) if error.message.len() < 200)
        );
        let odd = heard(r#"{"jsonrpc":"2.0","id":3,"error":[7]}"#).unwrap();
        assert!(matches!(odd, Heard::Answer(3, Err(error)) if error.message.ends_with("[7]")));
        let error = heard(r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32000,"message":"no"}}"#).unwrap();
        assert!(matches!(error, Heard::Answer(3, Err(error)) if error == RpcError::new(-32000, "no")));
        assert!(matches!(heard(r#"{"jsonrpc":"2.0","method":"log"}"#).unwrap(), Heard::Notification));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let table = [
            ("hello", "no JSON-RPC"),
            ("[]", "no JSON-RPC"),
            (r#"{"id":1,"result":1}"#, "no JSON-RPC"),
            (r#"{"jsonrpc":"1.0","id":1,"result":1}"#, "\"1.0\""),
            (r#"{"jsonrpc":"2.0","id":"x","result":1}"#, "none of ours"),
            (r#"{"jsonrpc":"2.0","result":1}"#, "none of ours"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"run"}"#, "request of its own"),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"eh"}}"#, "eh"),
        ];
        for (text, expected) in table {
            let error = heard(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn requests_and_responses_are_json_rpc() {
        let bytes = request(7, "read", &json!({"path": "a"})).unwrap();
        let incoming: Incoming = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(
            (incoming.id, &*incoming.method, &incoming.params["path"]),
            (json!(7), "read", &json!("a"))
        );
        let answer = response(&json!(7), Err(RpcError::new(code::NO_METHOD, "no")));
        let expected = json!({"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no"}});
        assert_eq!(serde_json::from_slice::<Value>(&answer).unwrap(), expected);
    }
}
