//! A play of Ansible with an inventory; as a reader, the routes and sysctls
//! in plays of others.

mod connections;
mod inventory;
mod read;
mod routes;
mod settings;
mod variables;

pub(crate) use self::{
    inventory::{folder, is_inventory},
    routes::Play,
};
use crate::{
    backend::{Backend, ReadDocument},
    formats::shell,
    read::yaml::Yaml,
    routes::{RouteFiles, Routes},
    settings::{Commands, Settings},
};

#[derive(Debug)]
pub(crate) struct Ansible;

static ROUTES: Routes =
    Routes { next_step: "ansible-playbook -i inventory.yml site.yml", files: RouteFiles::Play };

static SETTINGS: Settings = Settings { commands: Commands::Any, unfit: shell::unfit, files: settings::files };

impl Backend for Ansible {
    fn name(&self) -> &'static str {
        "ansible"
    }

    fn routes(&self) -> Option<&'static Routes> {
        Some(&ROUTES)
    }

    fn settings(&self) -> Option<&'static Settings> {
        Some(&SETTINGS)
    }

    /// Any document that no other format claims, at any depth.
    fn document(&self, _document: &Yaml) -> Option<ReadDocument> {
        Some(read::read)
    }
}
