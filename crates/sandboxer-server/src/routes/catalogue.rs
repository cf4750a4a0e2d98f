//! What there is to ask for.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sandboxer_core::access::TokenScope;
use sandboxer_core::environment::Catalogue;
use sandboxer_documents::{ExtensionsDocument, HostsDocument, ProfilesDocument};

use super::fine;
use crate::app::{App, Who};
use crate::problem::Problem;

pub async fn profiles(State(app): State<Arc<App>>, who: Who) -> Result<Response, Problem> {
    show(&app, &who, |catalogue| fine(&ProfilesDocument::new(catalogue))).await
}

pub async fn extensions(State(app): State<Arc<App>>, who: Who) -> Result<Response, Problem> {
    show(&app, &who, |catalogue| fine(&ExtensionsDocument::new(catalogue))).await
}

pub async fn hosts(State(app): State<Arc<App>>, who: Who) -> Result<Response, Problem> {
    show(&app, &who, |catalogue| fine(&HostsDocument::new(catalogue))).await
}

async fn show(
    app: &Arc<App>,
    who: &Who,
    show: impl FnOnce(&Catalogue) -> Result<Response, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    who.require(TokenScope::Read, "read the catalogue")?;
    let backend = app.backend.clone();
    app.look(who, move |_| show(&backend.catalogue()?)).await
}
