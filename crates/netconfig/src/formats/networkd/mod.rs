//! Files of systemd-networkd: `.network`, and `.link` for settings of links.

mod devices;
mod read;
mod routes;
mod rules;
mod settings;

use crate::{
    backend::Backend,
    read::detect::{FileName, Reader, Turn, has_line},
    routes::{RouteFiles, Routes, split::networkd_hooks},
    settings::{Commands, Settings},
};

#[derive(Debug)]
pub(crate) struct Networkd;

static ROUTES: Routes = Routes {
    next_step: "copy a host's folder to its /, then: systemctl restart systemd-networkd",
    files: RouteFiles::Tool { grammar: routes::GRAMMAR, files: routes::files, hooks: networkd_hooks },
};

/// Link attributes, driver, qdisc.
static SETTINGS: Settings =
    Settings { commands: Commands::None, unfit: settings::unfit, files: settings::files };

const READER: Reader = Reader { turn: Turn::Interfaces, read: read::read };

impl Backend for Networkd {
    fn name(&self) -> &'static str {
        "networkd"
    }

    fn routes(&self) -> Option<&'static Routes> {
        Some(&ROUTES)
    }

    fn settings(&self) -> Option<&'static Settings> {
        Some(&SETTINGS)
    }

    fn named(&self, name: &FileName<'_>) -> Option<Reader> {
        if name.folder.ends_with(".network.d") && name.extension == "conf" {
            return Some(Reader { turn: Turn::DropIns, read: read::read_drop_in });
        }
        if name.name == "networkd.conf" || name.folder == "networkd.conf.d" && name.extension == "conf" {
            return Some(Reader { turn: Turn::Names, read: devices::read_manager });
        }
        match name.extension {
            "network" => Some(READER),
            "netdev" => Some(Reader { turn: Turn::Names, read: devices::read_device }),
            "link" => Some(Reader { turn: Turn::Names, read: devices::read_link }),
            _ => None,
        }
    }

    fn holding(&self, _name: &FileName<'_>, text: &str) -> Option<Reader> {
        let sections = ["[Network]", "[Route]", "[RoutingPolicyRule]"];
        let is_network = has_line(text, "[Match]") && sections.iter().any(|section| has_line(text, section));
        is_network.then_some(READER)
    }
}
