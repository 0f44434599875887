//! Netplan, with networkd behind it.

mod check;
mod read;
mod routes;

use crate::{
    backend::{Backend, ReadDocument},
    read::yaml::Yaml,
    routes::{RouteFiles, Routes, split::networkd_hooks},
};

#[derive(Debug)]
pub(crate) struct Netplan;

static ROUTES: Routes = Routes {
    next_step: "copy a host's folder to its /, then: netplan apply",
    files: RouteFiles::Tool { grammar: routes::GRAMMAR, files: routes::files, hooks: networkd_hooks },
};

impl Backend for Netplan {
    fn name(&self) -> &'static str {
        "netplan"
    }

    fn routes(&self) -> Option<&'static Routes> {
        Some(&ROUTES)
    }

    fn document(&self, document: &Yaml) -> Option<ReadDocument> {
        network(document)?;
        Some(|file, document, gathering| {
            if let Some(network) = network(document) {
                read::read(file, network, gathering);
            }
        })
    }
}

/// What is below `network:`; of cloud-init's network-config of version 2, the document itself.
fn network(document: &Yaml) -> Option<&Yaml> {
    let is_bare = document.get("version").and_then(Yaml::text) == Some("2")
        && ["ethernets", "bonds", "bridges", "vlans"].iter().any(|key| document.get(key).is_some());
    let network = if is_bare { Some(document) } else { document.get("network") };
    network.filter(|network| !network.entries().is_empty())
}
