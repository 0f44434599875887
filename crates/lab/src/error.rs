//! What can go wrong with a lab. Errors cross from the keeper to whoever
//! started it, so each has a form that can be sent.

use std::{io, path::PathBuf};

use clearstream_configfile::{ConfigError, did_you_mean};
use clearstream_netlink::NetlinkError;
use clearstream_schema::control::FailureKind;
use serde::{Deserialize, Serialize};

/// Why a lab could not be made, found or changed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A lab file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A lab of this name is running.
    #[error("the lab \"{name}\" is running already: take it down with `clearstream lab down {name}`")]
    NameTaken {
        /// Name.
        name: String,
    },
    /// No lab of this name is running.
    #[error("the lab \"{name}\" is not running: {}", how_to_start(.name))]
    NotRunning {
        /// Name.
        name: String,
    },
    /// A lab that is to be taken down is not running.
    #[error("no lab \"{name}\" is running{}: `clearstream lab list` shows those that are", like_running(.running, .name))]
    NothingToStop {
        /// Name.
        name: String,
        /// Names of those that run.
        running: Vec<String>,
    },
    /// Not root.
    #[error("a lab needs CAP_SYS_ADMIN and CAP_NET_ADMIN to {step}: run this as root")]
    Privilege {
        /// What was not allowed.
        step: String,
    },
    /// The kernel or the container lacks something.
    #[error("{what}: {remedy}")]
    Unsupported {
        /// What is missing.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// No host of this name in the lab.
    #[error("the lab \"{lab}\" has no host \"{host}\": it has {known}")]
    NoHost {
        /// Lab.
        lab: String,
        /// As asked.
        host: String,
        /// Its hosts.
        known: String,
    },
    /// The process of a host has ended.
    #[error("the host \"{host}\" of the lab \"{lab}\" has died: take the lab down and bring it up again")]
    HostDead {
        /// Lab.
        lab: String,
        /// Host.
        host: String,
    },
    /// No link or interface of this name in the lab.
    #[error("the lab \"{lab}\" has no {what}: it has {known}")]
    NoLink {
        /// Lab.
        lab: String,
        /// `link 3`, `interface eth7 on alpha`.
        what: String,
        /// What it has.
        known: String,
    },
    /// A fault that this place cannot have.
    #[error("the lab \"{lab}\" cannot have this fault at {place}: {reason}")]
    Fault {
        /// Lab.
        lab: String,
        /// `gw3`, `gw3:storage0`.
        place: String,
        /// Why, and what to do instead.
        reason: String,
    },
    /// A file of the state directory, or /proc and /sys of a host.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write`.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A sysctl of the lab file.
    #[error("host {host}: cannot set {key} to \"{value}\": {reason}")]
    Sysctl {
        /// Host.
        host: String,
        /// Key.
        key: String,
        /// Value.
        value: String,
        /// Why.
        reason: String,
    },
    /// The kernel refused a link, an address or a route.
    #[error("host {host}: {source}")]
    Network {
        /// Host.
        host: String,
        /// What was refused.
        source: NetlinkError,
    },
    /// A system call of the keeper.
    #[error("cannot {step}: {source}")]
    System {
        /// What was being done.
        step: String,
        /// Why.
        source: io::Error,
    },
    /// What the keeper said.
    #[error("{message}")]
    Keeper {
        /// Of its error.
        kind: LabErrorKind,
        /// For people.
        message: String,
    },
}

/// What starts a lab of this name, if anything does.
fn how_to_start(name: &str) -> String {
    if crate::file::built_in_names().any(|known| known == name) {
        return format!("bring it up with `clearstream lab up {name}`");
    }
    let hint = did_you_mean(name, crate::file::built_in_names());
    format!(
        "none of this name is built in{hint}; `clearstream lab list` shows those that run, and a lab file is \
         brought up by its path"
    )
}

fn like_running(running: &[String], name: &str) -> String {
    did_you_mean(name, running.iter().map(String::as_str))
}

/// Kinds of failures; one of the keeper crosses to its controller with its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabErrorKind {
    /// A lab file or a request is invalid.
    Invalid,
    /// A lab of this name is running already, or none is.
    Name,
    /// The process of a host has ended.
    HostDead,
    /// A privilege or a feature of the kernel is missing.
    Unsupported,
    /// A file could not be read or written.
    File,
    /// A fault of the lab itself.
    Internal,
}

impl LabError {
    /// What kind of failure it is.
    pub fn kind(&self) -> LabErrorKind {
        match self {
            Self::Config(ConfigError::Invalid { .. })
            | Self::NoHost { .. }
            | Self::NoLink { .. }
            | Self::Fault { .. }
            | Self::Sysctl { .. } => LabErrorKind::Invalid,
            Self::Config(ConfigError::Unknown { .. })
            | Self::NameTaken { .. }
            | Self::NotRunning { .. }
            | Self::NothingToStop { .. } => LabErrorKind::Name,
            Self::HostDead { .. } => LabErrorKind::HostDead,
            Self::Privilege { .. } | Self::Unsupported { .. } => LabErrorKind::Unsupported,
            Self::Config(ConfigError::Read { .. }) | Self::File { .. } => LabErrorKind::File,
            Self::Network { source, .. } => network_kind(source),
            Self::System { source, .. } => match FailureKind::of_system(source) {
                FailureKind::Unsupported => LabErrorKind::Unsupported,
                _ => LabErrorKind::Internal,
            },
            Self::Keeper { kind, .. } => *kind,
        }
    }

    /// A step of the keeper that the system did not do; a lack of privilege is told apart.
    pub(crate) fn system(step: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let step = step.into();
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Privilege { step },
            _ => Self::System { step, source },
        }
    }

    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }

    pub(crate) fn network(host: &str) -> impl FnOnce(NetlinkError) -> Self {
        let host = host.to_owned();
        move |source| Self::Network { host, source }
    }
}

/// Links, addresses and routes are those of the lab file: what the kernel does
/// not take of them is the file's mistake, unless this host lacks something.
fn network_kind(error: &NetlinkError) -> LabErrorKind {
    match error {
        NetlinkError::Refused { source, .. } => match FailureKind::of_system(&source.clone().into()) {
            FailureKind::Unsupported => LabErrorKind::Unsupported,
            _ => LabErrorKind::Invalid,
        },
        NetlinkError::Socket { source, .. } if FailureKind::of_system(source) == FailureKind::Unsupported => {
            LabErrorKind::Unsupported
        }
        NetlinkError::Unfit { .. } | NetlinkError::NoInterface { .. } => LabErrorKind::Invalid,
        _ => LabErrorKind::Internal,
    }
}

/// An error on its way between processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentError {
    kind: LabErrorKind,
    message: String,
}

impl From<&LabError> for SentError {
    fn from(error: &LabError) -> Self {
        Self { kind: error.kind(), message: error.to_string() }
    }
}

impl From<SentError> for LabError {
    fn from(sent: SentError) -> Self {
        Self::Keeper { kind: sent.kind, message: sent.message }
    }
}
