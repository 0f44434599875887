//! Files of the network scripts: `ifcfg-*`, `route-*`, `rule-*`.

mod read;
mod routes;

use self::read::File;
use crate::{
    backend::Backend,
    read::detect::{FileName, Reader, Turn},
    routes::{RouteFiles, Routes, split::manager_hooks},
};

#[derive(Debug)]
pub(crate) struct Ifcfg;

static ROUTES: Routes = Routes {
    next_step: "copy a host's folder to its /, then: systemctl restart network",
    files: RouteFiles::Tool { grammar: routes::GRAMMAR, files: routes::files, hooks: manager_hooks },
};

impl Backend for Ifcfg {
    fn name(&self) -> &'static str {
        "ifcfg"
    }

    fn routes(&self) -> Option<&'static Routes> {
        Some(&ROUTES)
    }

    fn named(&self, name: &FileName<'_>) -> Option<Reader> {
        if name.name == "network" && name.folder == "sysconfig" {
            return Some(Reader { turn: Turn::Names, read: read::read_network });
        }
        Some(Reader {
            turn: Turn::Interfaces,
            read: match read::file(name.name)? {
                File::Interface => |source, gathering| read::read(File::Interface, source, gathering),
                File::Routes { ipv6: false } => {
                    |source, gathering| read::read(File::Routes { ipv6: false }, source, gathering)
                }
                File::Routes { ipv6: true } => {
                    |source, gathering| read::read(File::Routes { ipv6: true }, source, gathering)
                }
                File::Rules { ipv6: false } => {
                    |source, gathering| read::read(File::Rules { ipv6: false }, source, gathering)
                }
                File::Rules { ipv6: true } => {
                    |source, gathering| read::read(File::Rules { ipv6: true }, source, gathering)
                }
            },
        })
    }
}
