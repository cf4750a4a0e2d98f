//! Tokens: made, listed, taken back, and looked at when somebody shows one.

use jiff::Timestamp;

use super::manager::SandboxManager;
use super::names;
use crate::access::{Caller, Credential, NewToken, Token, TokenRefusal, TokenScope};
use crate::store::now;
use crate::{Error, Result, resolve};

/// Fewer characters of an id than this name no token.
const SHORTEST: usize = 4;
/// The longest name of a project.
const LONGEST_PROJECT: usize = 100;

impl SandboxManager {
    /// Makes a token. The text is what its owner shows; it is kept nowhere.
    pub fn create_token(&self, new: NewToken) -> Result<(Token, String)> {
        names::check("principal", &new.principal)?;
        check_project(&new.consumer.project)?;
        check_resources(&new)?;
        let (credential, text) = Credential::generate()?;
        let token = Token {
            id: credential.id.clone(),
            principal: new.principal,
            consumer: new.consumer,
            scopes: new.scopes,
            resources: new.resources,
            created_at: now(),
            // As it is kept, so that what is told now is what is told later.
            expires_at: new.expires_at.map(whole_microseconds),
            revoked_at: None,
        };
        self.store.insert_token(&token, &credential)?;
        Ok((token, text))
    }

    /// All tokens, newest first; those that are no good any more, too.
    pub fn tokens(&self) -> Result<Vec<Token>> {
        self.store.tokens()
    }

    /// Takes a token back, by its id or the beginning of it. Taking it back twice is fine.
    pub fn revoke_token(&self, id: &str) -> Result<Token> {
        let tokens = self.store.tokens()?;
        let found: Vec<&Token> =
            tokens.iter().filter(|token| id.len() >= SHORTEST && token.id.starts_with(id)).collect();
        let [only] = found[..] else { return Err(not_one(id, &tokens, found.len())) };
        self.store.revoke_token(&only.id)?;
        let revoked = self.store.token(&only.id)?.map(|(token, _)| token);
        revoked.ok_or_else(|| Error::not_found("token", id))
    }

    /// Whether a token that was taken once would be taken now.
    pub fn is_good(&self, id: &str) -> Result<bool> {
        Ok(self.store.token(id)?.is_some_and(|(token, _)| still_good(token).is_ok()))
    }

    /// Who shows this token. The outer error is the store's; the inner one says why the token is not taken.
    pub fn authenticate(&self, text: &str) -> Result<std::result::Result<Caller, TokenRefusal>> {
        let shown = match Credential::parse(text) {
            Ok(shown) => shown,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let found = self.store.token(&shown.id)?;
        let known = found.filter(|(_, secret)| secret.as_ref().is_some_and(|kept| kept.is(&shown.secret)));
        Ok(match known {
            Some((token, _)) => still_good(token).map(Caller::from),
            None => Err(TokenRefusal::Unknown(shown.id)),
        })
    }
}

fn whole_microseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

fn still_good(token: Token) -> std::result::Result<Token, TokenRefusal> {
    match (token.revoked_at, token.expires_at) {
        (Some(at), _) => Err(TokenRefusal::Revoked(token.id, at)),
        (None, Some(at)) if at <= now() => Err(TokenRefusal::Expired(token.id, at)),
        _ => Ok(token),
    }
}

/// It stands in lists, events and bills of everybody.
fn check_project(project: &str) -> Result<()> {
    let plain = project.chars().all(|c| !c.is_control() && !c.is_whitespace());
    if plain && !project.is_empty() && project.len() <= LONGEST_PROJECT {
        return Ok(());
    }
    let message =
        format!("{project:?} is no id for a project: up to {LONGEST_PROJECT} characters without spaces");
    Err(Error::usage(message))
}

/// Whoever may make sandboxes may read what they are made of: that is never everything by default.
fn check_resources(new: &NewToken) -> Result<()> {
    if new.scopes.contains(&TokenScope::Work) && new.resources.is_empty() {
        return Err(Error::Usage {
            message: "a token that makes sandboxes has to say of what".to_owned(),
            hint: Some("name directories or beginnings of URLs: --resource /srv/web; `--resource /` for every file here".to_owned()),
        });
    }
    let odd = |root: &&String| !root.starts_with('/') && !root.contains("://");
    match new.resources.iter().find(odd) {
        Some(root) => {
            Err(Error::usage(format!("{root:?} is neither an absolute path nor the beginning of a URL")))
        }
        None => Ok(()),
    }
}

fn not_one(id: &str, tokens: &[Token], found: usize) -> Error {
    if found > 1 {
        return Error::usage(format!("{id:?} is the beginning of {found} tokens: give more of it"));
    }
    let ids: Vec<String> = tokens.iter().map(|token| token.id.clone()).collect();
    Error::NotFound { what: "token", name: id.to_owned(), similar: resolve::nearest(id, ids.iter()) }
}
