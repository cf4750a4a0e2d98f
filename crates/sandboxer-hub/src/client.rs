//! One post to the hub, held to deadlines.
//!
//! No proxy of the environment, no redirects: a token goes where the configuration says and nowhere else. What the hub says besides
//! its status is thrown away, since it might repeat the token.

use std::time::Duration;

use ureq::Agent;

use crate::cloud_event::{CONTENT_TYPE, CloudEvent};
use crate::http::{careful, keeps_a_secret};
use crate::token::Secret;

const TO_CONNECT: Duration = Duration::from_secs(5);
const TO_ANSWER: Duration = Duration::from_secs(15);
const ALTOGETHER: Duration = Duration::from_secs(30);

/// So much of an answer is read, for the connection to be used again.
const MOST_OF_AN_ANSWER: u64 = 16 << 10;
const TO_END_THE_ANSWER: Duration = Duration::from_secs(2);

/// Why an event was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotTaken {
    /// Whether the hub does not want it as it is, so that a person has to look.
    pub(crate) refused: bool,
    pub(crate) reason: String,
}

/// The hub, as far as one round is concerned.
pub(crate) struct Hub<'a> {
    url: &'a str,
    token: Option<Secret>,
    agent: Agent,
}

impl<'a> Hub<'a> {
    pub(crate) fn new(url: &'a str, token: Option<Secret>) -> Self {
        let config = careful(url)
            .timeout_resolve(Some(TO_CONNECT))
            .timeout_connect(Some(TO_CONNECT))
            .timeout_send_request(Some(TO_ANSWER))
            .timeout_send_body(Some(TO_ANSWER))
            .timeout_recv_response(Some(TO_ANSWER))
            .timeout_recv_body(Some(TO_END_THE_ANSWER))
            .timeout_global(Some(ALTOGETHER));
        Self { url, token, agent: config.build().new_agent() }
    }

    /// Posts an event; fine if the hub has taken it.
    pub(crate) fn post(&self, event: &CloudEvent<'_>) -> Result<(), NotTaken> {
        if self.token.is_some() && !keeps_a_secret(self.url) {
            return Err(self.not_taken(true, "a token is not sent without encryption: use https"));
        }
        let body = serde_json::to_vec(event).map_err(|e| self.not_taken(false, &e.to_string()))?;
        let mut request = self.agent.post(self.url).header("content-type", CONTENT_TYPE);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {}", token.reveal()));
        }
        let mut answer = request.send(&body[..]).map_err(|e| self.not_taken(false, &e.to_string()))?;
        let _ = answer.body_mut().with_config().limit(MOST_OF_AN_ANSWER).read_to_vec();
        self.judge(answer.status().as_u16())
    }

    fn judge(&self, status: u16) -> Result<(), NotTaken> {
        let told = |refused, what: &str| Err(self.not_taken(refused, &format!("{what} (HTTP {status})")));
        match status {
            200..=299 => Ok(()),
            300..=399 => told(true, "it names another place, and redirects are not followed"),
            401 | 403 => told(true, "it refuses the token, or wants one"),
            408 | 429 => told(false, "it is busy"),
            400..=499 => told(true, "it refuses the event"),
            _ => told(false, "it fails"),
        }
    }

    fn not_taken(&self, refused: bool, what: &str) -> NotTaken {
        // The part after `?` may be how this hub knows its callers.
        let place = self.url.split('?').next().unwrap_or_default();
        NotTaken { refused, reason: format!("the hub {place} has not taken an event: {what}") }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::cloud_event::example;

    /// Answers one request with `answer`; gives what was asked.
    fn once(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/e?key=hidden", listener.local_addr().unwrap());
        let serve = move || {
            let (mut client, _) = listener.accept().unwrap();
            let asked = request(&mut client);
            client.write_all(answer.as_bytes()).unwrap();
            asked
        };
        (url, std::thread::spawn(serve))
    }

    fn request(client: &mut TcpStream) -> String {
        let mut got = Vec::new();
        let mut piece = [0; 4096];
        while !String::from_utf8_lossy(&got).contains("\"data\":") || !got.ends_with(b"}}") {
            let read = client.read(&mut piece).unwrap();
            assert!(read > 0, "it ended early");
            got.extend_from_slice(&piece[..read]);
        }
        String::from_utf8(got).unwrap()
    }

    fn post(answer: &'static str) -> (Result<(), NotTaken>, String) {
        let (url, server) = once(answer);
        let token = Some(Secret::new("hunter2", "here").unwrap());
        let event = example(1, "ready");
        let posted = Hub::new(&url, token).post(&CloudEvent::new(&event, "urn:x"));
        (posted, server.join().unwrap())
    }

    #[test]
    fn a_post_is_a_cloud_event_with_the_token() {
        let (posted, asked) = post("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
        posted.unwrap();
        assert!(asked.starts_with("POST /e?key=hidden HTTP/1.1\r\n"), "{asked}");
        let asked = asked.to_lowercase();
        assert!(asked.contains("content-type: application/cloudevents+json"), "{asked}");
        assert!(asked.contains("authorization: bearer hunter2\r\n"), "{asked}");
        assert!(asked.contains("\"type\":\"dev.sandboxer.sandbox.ready.v1\""), "{asked}");
    }

    #[test]
    fn what_the_hub_says_decides_and_is_not_repeated() {
        for (answer, refused) in [
            ("HTTP/1.1 400 No\r\ncontent-length: 7\r\n\r\nhunter2", true),
            ("HTTP/1.1 401 hunter2\r\ncontent-length: 0\r\n\r\n", true),
            ("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/hunter2\r\ncontent-length: 0\r\n\r\n", true),
            ("HTTP/1.1 429 Later\r\ncontent-length: 0\r\n\r\n", false),
            ("HTTP/1.1 408 Later\r\ncontent-length: 0\r\n\r\n", false),
            ("HTTP/1.1 503 Later\r\ncontent-length: 7\r\n\r\nhunter2", false),
            ("nonsense hunter2\r\n\r\n", false),
            ("", false),
        ] {
            let not_taken = post(answer).0.unwrap_err();
            assert_eq!(not_taken.refused, refused, "{answer}: {not_taken:?}");
            assert!(!not_taken.reason.contains("hunter2"), "{not_taken:?}");
            assert!(!not_taken.reason.contains("hidden"), "{not_taken:?}");
        }
    }

    #[test]
    fn nobody_there_is_told() {
        let url = format!("http://{}/", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
        let event = example(1, "ready");
        let not_taken = Hub::new(&url, None).post(&CloudEvent::new(&event, "urn:x")).unwrap_err();
        assert!(!not_taken.refused && not_taken.reason.contains(&url), "{not_taken:?}");
    }
}
