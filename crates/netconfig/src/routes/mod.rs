//! A host's routing as files of the tools that configure networks. What a tool
//! cannot express goes into batches of `ip` and a unit that loads them at every
//! start, with a notice.

pub(crate) mod batches;
mod check;
mod folder;
pub(crate) mod ip_arguments;
pub(crate) mod split;

use std::{fmt, io, path::PathBuf, str::FromStr};

use clearstream_schema::{control::FailureKind, failure::Classified, routing::HostRouting};

pub use self::folder::{FolderWriter, Summary};
use self::split::{Grammar, Split, split};
use crate::backend::BACKENDS;

/// How a format expresses the routing of hosts.
pub(crate) struct Routes {
    /// How the files of a host take effect.
    pub(crate) next_step: &'static str,
    /// Its files.
    pub(crate) files: RouteFiles,
}

/// Files of hosts.
pub(crate) enum RouteFiles {
    /// Those of a tool, and batches of `ip` for what it cannot express.
    Tool {
        /// What it can express.
        grammar: Grammar,
        /// Its files of a host.
        files: fn(&HostRouting) -> Vec<RenderedFile>,
        /// Hooks that load the batches again when an interface has been down.
        hooks: fn() -> Vec<RenderedFile>,
    },
    /// Batches of `ip` alone.
    Batches,
    /// One play of Ansible for all hosts.
    Play,
}

/// A format in which hosts' routes are kept.
#[derive(Clone, Copy)]
pub struct Format {
    name: &'static str,
    routes: &'static Routes,
}

impl Format {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let formats = BACKENDS.iter();
        formats.filter_map(|format| Some(Self { name: format.name(), routes: format.routes()? }))
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// How the files of a host take effect.
    pub fn next_step(self) -> &'static str {
        self.routes.next_step
    }

    /// Whether its files are for all hosts together.
    pub fn is_play(self) -> bool {
        matches!(self.routes.files, RouteFiles::Play)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::all().find(|format| format.name == text).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            format!("\"{text}\" is no format: write one of {}", names.join(", "))
        })
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
    pub(crate) fn text(path: impl Into<String>, text: String) -> Self {
        Self { path: path.into(), content: Content::Text { text, mode: 0o644 } }
    }

    pub(crate) fn private(path: impl Into<String>, text: String) -> Self {
        Self { path: path.into(), content: Content::Text { text, mode: 0o600 } }
    }

    pub(crate) fn program(path: impl Into<String>, text: &str) -> Self {
        Self { path: path.into(), content: Content::Text { text: text.to_owned(), mode: 0o755 } }
    }
}

/// The files of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Files, each path once.
    pub files: Vec<RenderedFile>,
    /// What the tool cannot express, and what was written instead.
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
    /// The plan of the host is inconsistent.
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
    /// A system call failed.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

impl Classified for RenderError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Unwritable { .. } | Self::Inconsistent { .. } | Self::NotByHost | Self::Twice(_) => {
                FailureKind::Invalid
            }
            Self::NotEmpty { .. } => FailureKind::Name,
            Self::Write { .. } => FailureKind::File,
        }
    }
}

pub(crate) const APPLY: &str = include_str!("files/apply");
pub(crate) const REMOVE: &str = include_str!("files/remove");
pub(crate) const UNIT: &str = include_str!("files/clearstream-routes.service");
const HOOK: &str = include_str!("files/hook");
const NETWORKD_CONF: &str = include_str!("files/networkd.conf");
pub(crate) const SITE: &str = include_str!("files/site.yml");
pub(crate) const MARKS_TEMPLATE: &str = include_str!("files/marks.nft.j2");

/// Whether a text is one of the files that are the same for every host.
pub(crate) fn is_constant(text: &str) -> bool {
    [APPLY, REMOVE, UNIT, HOOK, NETWORKD_CONF, SITE, MARKS_TEMPLATE].contains(&text)
}

/// Writes the files of one host. Fails when a name or value cannot stand in a
/// file, and for a format whose files are for all hosts.
pub fn host(routing: &HostRouting, format: Format) -> Result<Rendered, RenderError> {
    check::host(routing)?;
    let (rest, notices, mut files, hooks) = match &format.routes.files {
        RouteFiles::Tool { grammar, files, hooks } => {
            let Split { carried, rest, notices } = split(routing, grammar);
            (rest, notices, files(&carried), hooks())
        }
        RouteFiles::Batches => {
            let rest = HostRouting { sysctls: Default::default(), ..routing.clone() };
            (rest, Vec::new(), Vec::new(), Vec::new())
        }
        RouteFiles::Play => return Err(RenderError::NotByHost),
    };
    files.extend(batches::sysctls(&routing.sysctls));
    files.extend(batches::files(&rest));
    if !files.is_empty() && batches::has_any(&rest) {
        files.extend(hooks);
    }
    Ok(Rendered { files, notices })
}
