//! The server's side of SCRAM-SHA-256, without channel binding. The password itself is never sent.

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use ulid::Ulid;

/// What programs expect at least. Tests log in hundreds of times, and without optimisation.
const ITERATIONS: u32 = if cfg!(test) { 16 } else { 4096 };

/// What is needed to check a password, and does not reveal it.
#[derive(Clone)]
pub struct Verifier {
    salt: [u8; 16],
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

impl Verifier {
    /// Of a password.
    pub fn new(password: &str) -> Self {
        let salt = Ulid::generate().to_bytes();
        let salted = salted(password.as_bytes(), &salt);
        Self {
            salt,
            stored_key: Sha256::digest(signed(&salted, b"Client Key")).into(),
            server_key: signed(&salted, b"Server Key"),
        }
    }

    /// Answers the first message of a client; `None` where it is none that can be answered.
    pub fn begin(&self, client_first: &str) -> Option<Exchange> {
        let bare = client_first.strip_prefix("n,,").or_else(|| client_first.strip_prefix("y,,"))?;
        let nonce = bare.split(',').find_map(|part| part.strip_prefix("r="))?;
        let nonce = format!("{nonce}{}{}", Ulid::generate(), Ulid::generate());
        let first = format!("r={nonce},s={},i={ITERATIONS}", BASE64.encode(&self.salt));
        let header = BASE64.encode(&client_first.as_bytes()[..3]);
        Some(Exchange { verifier: self.clone(), said: format!("{bare},{first}"), first, nonce, header })
    }
}

/// One login under way.
pub struct Exchange {
    verifier: Verifier,
    /// What the client is told first.
    pub first: String,
    said: String,
    nonce: String,
    header: String,
}

impl Exchange {
    /// What the client is told last, where it knows the password.
    pub fn finish(&self, client_final: &str) -> Option<String> {
        let (unproved, proof) = client_final.rsplit_once(",p=")?;
        if unproved != format!("c={},r={}", self.header, self.nonce) {
            return None;
        }
        let said = format!("{},{unproved}", self.said);
        let signature = signed(&self.verifier.stored_key, said.as_bytes());
        let proof: [u8; 32] = BASE64.decode(proof.as_bytes()).ok()?.try_into().ok()?;
        let key: Vec<u8> = proof.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let stored: [u8; 32] = Sha256::digest(key).into();
        // Compared as hashes of hashes, so that the time it takes tells nothing.
        let same = Sha256::digest(stored) == Sha256::digest(self.verifier.stored_key);
        same.then(|| format!("v={}", BASE64.encode(&signed(&self.verifier.server_key, said.as_bytes()))))
    }
}

fn salted(password: &[u8], salt: &[u8]) -> [u8; 32] {
    let mut block = signed(password, &[salt, &[0, 0, 0, 1]].concat());
    let mut result = block;
    for _ in 1..ITERATIONS {
        block = signed(password, &block);
        result.iter_mut().zip(block).for_each(|(byte, other)| *byte ^= other);
    }
    result
}

fn signed(key: &[u8], text: &[u8]) -> [u8; 32] {
    // HMAC takes keys of any length.
    let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(key) else { return [0; 32] };
    mac.update(text);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

    use super::*;

    fn log_in(password: &str) -> Option<()> {
        let verifier = Verifier::new("right");
        let mut client = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
        let exchange = verifier.begin(std::str::from_utf8(client.message()).unwrap()).unwrap();
        client.update(exchange.first.as_bytes()).unwrap();
        let last = exchange.finish(std::str::from_utf8(client.message()).unwrap())?;
        client.finish(last.as_bytes()).unwrap();
        Some(())
    }

    #[test]
    fn only_the_right_password_is_let_in() {
        assert_eq!(log_in("right"), Some(()));
        assert_eq!(log_in("wrong"), None);
        let verifier = Verifier::new("right");
        assert!(verifier.begin("p=tls-unique,,n=,r=x").is_none());
        assert!(verifier.begin("").is_none());
        let exchange = verifier.begin("n,,n=,r=x").unwrap();
        assert_eq!(exchange.finish("c=biws,r=x,p=AAAA"), None);
        assert_eq!(exchange.finish(""), None);
    }
}
