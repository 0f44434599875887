//! Errors of labs. The keeper sends them to its clients, so each has a
//! serialisable form.

use std::{io, path::PathBuf};

use clearstream_configfile::{ConfigError, did_you_mean};
use clearstream_netlink::NetlinkError;
use clearstream_schema::{control::FailureKind, failure::Classified};
use serde::{Deserialize, Serialize};

/// Errors of creating, finding or changing a lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Invalid lab file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A lab of this name is running.
    #[error("the lab \"{name}\" is running already: take it down with `clearstream lab down {name}`")]
    NameTaken {
        /// Name.
        name: String,
    },
    /// A person asked to stop while it came up.
    #[error("the lab \"{name}\" was coming up: interrupted")]
    Interrupted {
        /// Name.
        name: String,
    },
    /// No lab of this name is running.
    #[error("the lab \"{name}\" is not running: {}", start_hint(.name))]
    NotRunning {
        /// Name.
        name: String,
    },
    /// The lab to be stopped is not running.
    #[error("no lab \"{name}\" is running{}: `clearstream lab list` shows those that are", like_running(.running, .name))]
    NothingToStop {
        /// Name.
        name: String,
        /// Names of running labs.
        running: Vec<String>,
    },
    /// Not root.
    #[error("a lab needs CAP_SYS_ADMIN and CAP_NET_ADMIN to {step}: run this as root")]
    Privilege {
        /// Step without permission.
        step: String,
    },
    /// The kernel or the container lacks a feature.
    #[error("{what}: {remedy}")]
    Unsupported {
        /// Missing feature.
        what: String,
        /// Suggested remedy.
        remedy: String,
    },
    /// No host of this name in the lab.
    #[error("the lab \"{lab}\" has no host \"{host}\": it has {known}")]
    NoHost {
        /// Lab.
        lab: String,
        /// Requested host.
        host: String,
        /// Hosts of the lab.
        known: String,
    },
    /// No service of the host mounts something of this name.
    #[error("{host} of the lab \"{lab}\" has no mount \"{mount}\": {known}")]
    NoMount {
        /// Lab.
        lab: String,
        /// Host.
        host: String,
        /// Requested mount.
        mount: String,
        /// Hosts that have it, or what else to write.
        known: String,
    },
    /// The process of a host has exited.
    #[error("the host \"{host}\" of the lab \"{lab}\" has died: restart the lab (lab down, lab up)")]
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
        /// Links or interfaces of the lab.
        known: String,
    },
    /// A fault that cannot be injected at this place.
    #[error("the lab \"{lab}\" cannot have this fault at {place}: {reason}")]
    Fault {
        /// Lab.
        lab: String,
        /// `gw3`, `gw3:storage0`.
        place: String,
        /// Reason, and a suggested correction.
        reason: String,
    },
    /// Error of a file of the state directory, or of /proc and /sys of a host.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Invalid sysctl of the lab file.
    #[error("host {host}: cannot set {key} to \"{value}\": {reason}")]
    Sysctl {
        /// Host.
        host: String,
        /// Key.
        key: String,
        /// Value.
        value: String,
        /// Cause.
        reason: String,
    },
    /// The kernel rejected a link, an address or a route.
    #[error("host {host}: {source}")]
    Network {
        /// Host.
        host: String,
        /// Netlink error.
        source: NetlinkError,
    },
    /// A service of a host cannot run.
    #[error("host {host}: the service \"{service}\" {reason}")]
    Service {
        /// Host.
        host: String,
        /// Service.
        service: String,
        /// Cause, with the end of its log.
        reason: String,
    },
    /// A system call of the keeper failed.
    #[error("cannot {step}: {source}")]
    System {
        /// Failed step.
        step: String,
        /// Cause.
        source: io::Error,
    },
    /// Error reported by the keeper.
    #[error("{message}")]
    Keeper {
        /// Kind of its error.
        kind: FailureKind,
        /// Message for people.
        message: String,
    },
}

/// Returns a hint how to start a lab of this name, if possible.
fn start_hint(name: &str) -> String {
    if crate::file::built_in_names().any(|known| known == name) {
        return format!("bring it up with `clearstream lab up {name}`");
    }
    let hint = did_you_mean(name, crate::file::built_in_names());
    format!(
        "there is no built-in lab of this name{hint}; `clearstream lab list` shows those that run, and a lab file is \
         brought up by its path"
    )
}

fn like_running(running: &[String], name: &str) -> String {
    did_you_mean(name, running.iter().map(String::as_str))
}

impl Classified for LabError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Config(error) => error.failure_kind(),
            Self::Fault { .. } | Self::Sysctl { .. } => FailureKind::Invalid,
            Self::NoHost { .. }
            | Self::NoMount { .. }
            | Self::NoLink { .. }
            | Self::NameTaken { .. }
            | Self::NotRunning { .. }
            | Self::NothingToStop { .. } => FailureKind::Name,
            Self::HostDead { .. } => FailureKind::Connection,
            Self::Interrupted { .. } => FailureKind::Interrupted,
            Self::Privilege { .. } | Self::Unsupported { .. } | Self::Service { .. } => {
                FailureKind::Unsupported
            }
            Self::File { .. } => FailureKind::File,
            Self::Network { source, .. } => network_kind(source),
            Self::System { source, .. } => match FailureKind::of_system(source) {
                FailureKind::Unreachable | FailureKind::InUse => FailureKind::Unsupported,
                // Of a connection: only processes of the lab are at the other ends.
                kind => kind,
            },
            Self::Keeper { kind, .. } => *kind,
        }
    }
}

impl LabError {
    /// Creates the error of a failed step of the keeper; missing privileges are
    /// distinguished.
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

/// Returns the kind of a netlink error. Links, addresses and routes are those
/// of the lab file: what the kernel rejects is an error of the file, unless
/// this host lacks a feature.
fn network_kind(error: &NetlinkError) -> FailureKind {
    match error {
        NetlinkError::Refused { source, .. } => match FailureKind::of_system(&source.clone().into()) {
            FailureKind::Unsupported => FailureKind::Unsupported,
            _ => FailureKind::Invalid,
        },
        NetlinkError::Unfit { .. } | NetlinkError::NoInterface { .. } => FailureKind::Invalid,
        NetlinkError::Socket { .. } | NetlinkError::Diagnostics { .. } | NetlinkError::Garbled(_) => {
            FailureKind::Unsupported
        }
    }
}

/// Serialised form of an error, for sending between processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentError {
    kind: FailureKind,
    message: String,
}

impl From<&LabError> for SentError {
    fn from(error: &LabError) -> Self {
        Self { kind: error.failure_kind(), message: error.to_string() }
    }
}

impl From<SentError> for LabError {
    fn from(sent: SentError) -> Self {
        Self::Keeper { kind: sent.kind, message: sent.message }
    }
}
