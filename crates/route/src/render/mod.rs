//! What a host routes by, as files of the tools that set networks up. What a
//! tool cannot say is not left out: it goes into files of `ip` and a unit that
//! loads them at every start, and a notice says so.

mod ansible;
mod batches;
mod check;
mod folder;
mod ifcfg;
mod netplan;
mod networkd;
mod networkmanager;
mod nmstate;
mod split;
pub(crate) mod variables;
mod words;

use std::{fmt, io, path::PathBuf, str::FromStr};

use clearstream_schema::routing::HostRouting;

pub use folder::{FolderWriter, Summary};
use split::Split;

/// A tool that sets networks up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Keyfiles of NetworkManager.
    Networkmanager,
    /// `.network` files of systemd-networkd.
    Networkd,
    /// Netplan, with networkd behind it.
    Netplan,
    /// Files of the network scripts: `ifcfg-*`, `route-*`, `rule-*`.
    Ifcfg,
    /// Nmstate's desired state.
    Nmstate,
    /// A play of Ansible with an inventory.
    Ansible,
    /// Batches of `ip` with a unit of systemd.
    Iproute2,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Networkmanager,
        Self::Networkd,
        Self::Netplan,
        Self::Ifcfg,
        Self::Nmstate,
        Self::Ansible,
        Self::Iproute2,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Networkmanager => "networkmanager",
            Self::Networkd => "networkd",
            Self::Netplan => "netplan",
            Self::Ifcfg => "ifcfg",
            Self::Nmstate => "nmstate",
            Self::Ansible => "ansible",
            Self::Iproute2 => "iproute2",
        }
    }
}

impl Format {
    /// How the files of a host get into force.
    pub fn next_step(self) -> &'static str {
        match self {
            Self::Networkmanager => {
                "copy a host's folder to its /, then: nmcli connection reload; nmcli connection up clearstream-INTERFACE"
            }
            Self::Networkd => "copy a host's folder to its /, then: systemctl restart systemd-networkd",
            Self::Netplan => "copy a host's folder to its /, then: netplan apply",
            Self::Ifcfg => "copy a host's folder to its /, then: systemctl restart network",
            Self::Nmstate => {
                "copy a host's folder to its /, then: nmstatectl apply /etc/nmstate/clearstream-routes.yml"
            }
            Self::Ansible => "ansible-playbook -i inventory.yml site.yml",
            Self::Iproute2 => {
                "copy a host's folder to its /, then: systemctl daemon-reload; systemctl start clearstream-routes"
            }
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| format!("\"{text}\" is no format: write one of {}", names()))
    }
}

/// A file of a host, at its place below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFile {
    /// Path without the leading slash: `etc/netplan/90-clearstream-routes.yaml`.
    pub path: String,
    /// What it holds.
    pub content: Content,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text, with the permissions that the tool wants.
    Text {
        /// Text.
        text: String,
        /// Permissions.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where it points.
        target: String,
    },
}

impl RenderedFile {
    fn text(path: impl Into<String>, text: String) -> Self {
        Self { path: path.into(), content: Content::Text { text, mode: 0o644 } }
    }

    fn private(path: impl Into<String>, text: String) -> Self {
        Self { path: path.into(), content: Content::Text { text, mode: 0o600 } }
    }

    fn program(path: impl Into<String>, text: &str) -> Self {
        Self { path: path.into(), content: Content::Text { text: text.to_owned(), mode: 0o755 } }
    }
}

/// The files of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Files, each path once.
    pub files: Vec<RenderedFile>,
    /// What the tool cannot say, and what was written instead.
    pub notices: Vec<String>,
}

/// Why no files were written.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Something cannot be written into any file as it is.
    #[error("{host}: {what} \"{value}\" cannot be written: {expected}")]
    Unwritable {
        /// Host.
        host: String,
        /// What.
        what: &'static str,
        /// As it is.
        value: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// The plan of the host does not hold together.
    #[error("{host}: {fault}")]
    Inconsistent {
        /// Host.
        host: String,
        /// What is wrong.
        fault: String,
    },
    /// Ansible's files are for all hosts together.
    #[error("an Ansible play is for a whole folder of hosts: write it with a folder writer")]
    NotByHost,
    /// Two hosts would have one folder.
    #[error("host {0} comes twice: give each host a name of its own")]
    Twice(String),
    /// The folder holds something.
    #[error("{} is not empty: give a folder that is new or empty", path.display())]
    NotEmpty {
        /// Folder.
        path: PathBuf,
    },
    /// The system says no.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

const APPLY: &str = include_str!("files/apply");
const REMOVE: &str = include_str!("files/remove");
const UNIT: &str = include_str!("files/clearstream-routes.service");
const HOOK: &str = include_str!("files/hook");
const NETWORKD_CONF: &str = include_str!("files/networkd.conf");
const SITE: &str = include_str!("files/site.yml");
const MARKS_TEMPLATE: &str = include_str!("files/marks.nft.j2");

/// Whether a text is one of the files that are the same for every host.
pub(crate) fn is_constant(text: &str) -> bool {
    [APPLY, REMOVE, UNIT, HOOK, NETWORKD_CONF, SITE, MARKS_TEMPLATE].contains(&text)
}

/// Writes the files of one host. Fails when a name or value cannot stand in a
/// file, and for [`Format::Ansible`].
pub fn host(routing: &HostRouting, format: Format) -> Result<Rendered, RenderError> {
    check::host(routing)?;
    let backend = match format {
        Format::Networkmanager => &networkmanager::BACKEND,
        Format::Networkd => &networkd::BACKEND,
        Format::Netplan => &netplan::BACKEND,
        Format::Ifcfg => &ifcfg::BACKEND,
        Format::Nmstate => &nmstate::BACKEND,
        Format::Ansible => return Err(RenderError::NotByHost),
        Format::Iproute2 => &split::NOTHING,
    };
    let Split { carried, rest, notices } = split::split(routing, backend);
    let mut files = match format {
        Format::Networkmanager => networkmanager::files(&carried),
        Format::Networkd => networkd::files(&carried),
        Format::Netplan => netplan::files(&carried),
        Format::Ifcfg => ifcfg::files(&carried),
        Format::Nmstate => nmstate::files(&carried),
        Format::Ansible | Format::Iproute2 => Vec::new(),
    };
    files.extend(batches::sysctls(&routing.sysctls));
    files.extend(batches::files(&rest));
    if !files.is_empty() && batches::has_any(&rest) {
        files.extend(split::hooks(format));
    }
    Ok(Rendered { files, notices })
}
