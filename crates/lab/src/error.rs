//! What can go wrong with a lab. Errors cross from the keeper to whoever
//! started it, so each has a form that can be sent.

use std::{io, path::PathBuf};

use clearstream_configfile::ConfigError;
use clearstream_netlink::NetlinkError;
use clearstream_schema::{ExitCode, control::FailureKind};
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
    #[error("the lab \"{name}\" is not running: bring it up with `clearstream lab up {name}`")]
    NotRunning {
        /// Name.
        name: String,
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
        /// Exit code that fits.
        exit_code: ExitCode,
        /// For people.
        message: String,
    },
}

impl LabError {
    /// Exit code of the command for this error.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::NoHost { .. }
            | Self::NoLink { .. }
            | Self::Fault { .. }
            | Self::Sysctl { .. } => ExitCode::Usage,
            Self::Config(ConfigError::Invalid { .. }) => ExitCode::Usage,
            Self::Config(ConfigError::Unknown { .. }) | Self::NameTaken { .. } | Self::NotRunning { .. } => {
                ExitCode::Name
            }
            Self::HostDead { .. } => ExitCode::PeerLost,
            Self::Privilege { .. } | Self::Unsupported { .. } => ExitCode::Unsupported,
            Self::Config(ConfigError::Read { .. }) | Self::File { .. } => ExitCode::File,
            Self::Network { source, .. } => network_code(source),
            Self::System { source, .. } => match FailureKind::of_system(source) {
                FailureKind::Unsupported => ExitCode::Unsupported,
                _ => ExitCode::Internal,
            },
            Self::Keeper { exit_code, .. } => *exit_code,
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
fn network_code(error: &NetlinkError) -> ExitCode {
    match error {
        NetlinkError::Refused { source, .. } => match FailureKind::of_system(&source.clone().into()) {
            FailureKind::Unsupported => ExitCode::Unsupported,
            _ => ExitCode::Usage,
        },
        NetlinkError::Socket { source, .. } if FailureKind::of_system(source) == FailureKind::Unsupported => {
            ExitCode::Unsupported
        }
        NetlinkError::Unfit { .. } | NetlinkError::NoInterface { .. } => ExitCode::Usage,
        _ => ExitCode::Internal,
    }
}

/// An error on its way between processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentError {
    exit_code: u8,
    message: String,
}

impl From<&LabError> for SentError {
    fn from(error: &LabError) -> Self {
        Self { exit_code: error.exit_code() as u8, message: error.to_string() }
    }
}

impl From<SentError> for LabError {
    fn from(sent: SentError) -> Self {
        let exit_code = ExitCode::ALL.into_iter().find(|code| *code as u8 == sent.exit_code);
        Self::Keeper { exit_code: exit_code.unwrap_or(ExitCode::Internal), message: sent.message }
    }
}
