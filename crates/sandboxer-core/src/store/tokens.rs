//! Tokens, without their secrets.

use rusqlite::{OptionalExtension, Row, params};

use super::Store;
use super::convert::{from_json, now, optional_time, time, to_json};
use crate::Result;
use crate::access::{Credential, Secret, Token};

const SELECT: &str = "SELECT id, principal, consumer, scopes, resources, created_at, expires_at, revoked_at, secret FROM tokens";

impl Store {
    /// Remembers a token that was just made.
    pub fn insert_token(&self, token: &Token, credential: &Credential) -> Result<()> {
        self.write("register a token", |t| {
            let sql = "INSERT INTO tokens (id, principal, consumer, scopes, resources, secret, created_at, expires_at)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            let values = params![
                token.id,
                token.principal,
                to_json(&token.consumer)?,
                to_json(&token.scopes)?,
                to_json(&token.resources)?,
                credential.secret.to_text(),
                token.created_at.as_microsecond(),
                token.expires_at.map(|at| at.as_microsecond()),
            ];
            t.prepare_cached(sql)?.execute(values).map(drop)
        })
    }

    /// All tokens, newest first.
    pub fn tokens(&self) -> Result<Vec<Token>> {
        self.read("list the tokens", |c| {
            let sql = format!("{SELECT} ORDER BY created_at DESC, id");
            c.prepare_cached(&sql)?.query_map([], token)?.collect()
        })
    }

    /// The token of that id, with what its secret is compared with.
    pub fn token(&self, id: &str) -> Result<Option<(Token, Option<Secret>)>> {
        self.read("look up a token", |c| {
            let sql = format!("{SELECT} WHERE id = ?1");
            let with_secret = |row: &Row<'_>| Ok((token(row)?, Secret::from_text(&row.get::<_, String>(8)?)));
            c.prepare_cached(&sql)?.query_row([id], with_secret).optional()
        })
    }

    /// Takes a token back; one that was taken back before stays as it was. Whether there is such a token.
    pub fn revoke_token(&self, id: &str) -> Result<bool> {
        self.write("revoke a token", |t| {
            let sql = "UPDATE tokens SET revoked_at = ifnull(revoked_at, ?2) WHERE id = ?1";
            Ok(t.prepare_cached(sql)?.execute(params![id, now().as_microsecond()])? > 0)
        })
    }
}

fn token(row: &Row<'_>) -> rusqlite::Result<Token> {
    Ok(Token {
        id: row.get(0)?,
        principal: row.get(1)?,
        consumer: from_json(row, 2)?,
        scopes: from_json(row, 3)?,
        resources: from_json(row, 4)?,
        created_at: time(row, 5)?,
        expires_at: optional_time(row, 6)?,
        revoked_at: optional_time(row, 7)?,
    })
}
