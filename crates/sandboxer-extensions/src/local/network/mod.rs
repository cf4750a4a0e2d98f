//! Stub.
use std::sync::Arc;
/// Port.
pub const PORT: u16 = 3128;
/// Rules.
pub struct Rules;
impl Rules {
    /// Parse.
    pub fn parse(_: &[String]) -> sandboxer_core::Result<Self> {
        Ok(Self)
    }
}
/// Decision.
#[derive(serde::Serialize)]
pub struct Decision {
    /// a
    pub allowed: bool,
    /// b
    pub host: String,
    /// c
    pub port: u16,
}
/// Proxy.
pub struct Proxy;
impl Proxy {
    /// Start.
    pub fn start(
        _: std::net::TcpListener,
        _: Rules,
        _: Arc<dyn Fn(&Decision) + Send + Sync>,
    ) -> std::io::Result<Self> {
        Ok(Self)
    }
}
