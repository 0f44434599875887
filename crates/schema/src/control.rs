//! Parts common to all calls between a controller and an agent. The messages
//! are the `control` crate's, the calls those of the engines that serve them.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

/// Random 16 bytes in hexadecimal that every data socket must present first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cookie(pub String);

/// Kind of failure; decides the controller's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The request is invalid on this host (core offline, unknown congestion control).
    Invalid,
    /// Privilege, kernel feature or program missing.
    Unsupported,
    /// Busy with another test.
    Busy,
    /// Address or port in use.
    InUse,
    /// The pairing's scope, or the families of settings, do not permit it.
    Forbidden,
    /// Data connection refused, reset or timed out.
    Connection,
    /// No route to the other host, or no host at its address.
    Unreachable,
    /// A file could not be read or written (disk full and read-only file systems included).
    File,
    /// A fault of the agent.
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
