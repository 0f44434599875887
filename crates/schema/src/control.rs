//! Parts common to all calls between a controller and an agent. The messages
//! are the `control` crate's, the calls those of the engines that serve them.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

/// Random 16 bytes in hexadecimal that every data socket must present first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cookie(pub String);

/// Kind of failure: what happened, wherever it did. It decides the exit code ([`crate::ExitCode`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The request is invalid on this host (core offline, unknown congestion control).
    Invalid,
    /// A name is taken or does not exist (lab, run, experiment, interface).
    Name,
    /// Privilege, kernel feature or program missing.
    Unsupported,
    /// Busy with another test.
    Busy,
    /// Address or port in use.
    InUse,
    /// The pairing's scope, or the families of settings, do not permit it.
    Forbidden,
    /// What is there stands against it: another's change, a connection that it would cut, a peer that rejects it.
    Refused,
    /// A peer that was lost, or a data connection that was refused, reset or timed out.
    Connection,
    /// No route to the other host, or no host at its address.
    Unreachable,
    /// A file could not be read or written: a full disk, a read-only file system, a device that fails.
    File,
    /// Done, but for some parts.
    Partial,
    /// Stopped by a person.
    Interrupted,
    /// A fault of this program.
    Internal,
}

/// Reason for rejecting a request, for people and for the exit code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Kind.
    pub kind: FailureKind,
    /// Cause, place and suggested correction.
    pub message: String,
}

impl Failure {
    /// A failure of a kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
