//! Stub.
use sandboxer_core::Result;
use sandboxer_core::model::DiffView;
use crate::engine::Changes;
/// Stub.
pub fn view(_: &Changes) -> Result<DiffView> { todo!() }
