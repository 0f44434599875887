//! Origin of a document: when, by which program and command, on which
//! hosts. Every document that a verb prints has it.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

/// Origin of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// Start of the command, RFC 3339 in UTC.
    pub started: String,
    /// Time of printing the document, RFC 3339 in UTC.
    pub ended: String,
    /// Version of the program.
    pub program_version: String,
    /// The command line, the program's name first.
    pub command: Vec<String>,
    /// The host that printed it.
    pub host: HostIdentity,
    /// Hosts that took part, by their agents; empty for what concerns this host alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostIdentity>,
}

/// A host and what runs on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostIdentity {
    /// Name in the document and on the command line; absent for the printing host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `client`, `server`, or another role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Host name that it has itself (`uname -n`).
    pub host_name: String,
    /// Kernel release (`uname -r`); absent for an agent that does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Version of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_version: Option<String>,
}
