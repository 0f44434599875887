//! Nmstate's desired state, alone or inside documents of Kubernetes and OpenShift.

mod policy;
pub(crate) mod read;
mod routes;

use crate::{
    backend::{Backend, ReadDocument},
    read::yaml::Yaml,
    routes::{RouteFiles, Routes, split::manager_hooks},
};

#[derive(Debug)]
pub(crate) struct Nmstate;

static ROUTES: Routes = Routes {
    next_step: "copy a host's folder to its /, then: nmstatectl apply /etc/nmstate/clearstream-routes.yml",
    files: RouteFiles::Tool { grammar: routes::GRAMMAR, files: routes::files, hooks: manager_hooks },
};

impl Backend for Nmstate {
    fn name(&self) -> &'static str {
        "nmstate"
    }

    fn routes(&self) -> Option<&'static Routes> {
        Some(&ROUTES)
    }

    fn document(&self, document: &Yaml) -> Option<ReadDocument> {
        if has_state(document) {
            return Some(read::read);
        }
        policy::states(document)?;
        Some(policy::read)
    }
}

/// Whether a document has keys of a desired state.
fn has_state(document: &Yaml) -> bool {
    ["routes", "route-rules", "interfaces"].iter().any(|key| document.get(key).is_some())
}
