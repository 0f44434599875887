//! Keyfiles of NetworkManager.

mod read;
pub(crate) use self::read::default_metric;
mod routes;
mod settings;

use crate::{
    backend::Backend,
    read::detect::{FileName, Reader, Turn, has_line},
    routes::{RouteFiles, Routes, split::manager_hooks},
    settings::{Commands, Settings},
};

#[derive(Debug)]
pub(crate) struct NetworkManager;

static ROUTES: Routes = Routes {
    next_step: "copy a host's folder to its /, then: nmcli connection reload; nmcli connection up clearstream-INTERFACE",
    files: RouteFiles::Tool { grammar: routes::GRAMMAR, files: routes::files, hooks: manager_hooks },
};

/// Link attributes, rings, channels, coalescing, pause, features, qdisc.
static SETTINGS: Settings =
    Settings { commands: Commands::None, unfit: settings::unfit, files: settings::files };

const READER: Reader = Reader { turn: Turn::Interfaces, read: read::read };

impl Backend for NetworkManager {
    fn name(&self) -> &'static str {
        "networkmanager"
    }

    fn routes(&self) -> Option<&'static Routes> {
        Some(&ROUTES)
    }

    fn settings(&self) -> Option<&'static Settings> {
        Some(&SETTINGS)
    }

    fn named(&self, name: &FileName<'_>) -> Option<Reader> {
        (name.extension == "nmconnection").then_some(READER)
    }

    fn holding(&self, _name: &FileName<'_>, text: &str) -> Option<Reader> {
        has_line(text, "[connection]").then_some(READER)
    }
}
