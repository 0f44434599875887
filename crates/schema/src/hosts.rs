//! Files that name hosts: what each is in a run, how to reach it, and the
//! addresses between them.

use std::net::IpAddr;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of the format.
pub const HOSTS_SCHEMA: &str = "clearstream.hosts";

/// A set of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostsFile {
    /// [`HOSTS_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// The hosts are those of this lab, which is brought up where it is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lab: Option<String>,
    /// The hosts.
    #[serde(rename = "host")]
    pub hosts: Vec<HostEntry>,
    /// Addresses between two of them, where they are not the ones that all use.
    #[serde(default, rename = "lane", skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<Lane>,
}

/// A host. In a lab its name identifies it; elsewhere exactly one of `local`, `ssh`
/// and `daemon` is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostEntry {
    /// Name in messages and records; in a lab, its name there.
    pub name: String,
    /// Role in the run: `client`, `server`, or a role that a workload requests.
    /// Without roles, the first is the client and the last the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Address for data at which the others reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// It is the host on which the command runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
    /// Destination for ssh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<String>,
    /// Options for ssh, as with `--ssh-option`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_options: Vec<String>,
    /// Name or path of the program there, for ssh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_program: Option<String>,
    /// `ADDRESS[:PORT]` of a paired `clearstream serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<String>,
    /// File of the pairing with that daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairing: Option<String>,
}

/// The address at which one host reaches another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Lane {
    /// Name of the host that connects.
    pub from: String,
    /// Name of the host that is reached.
    pub to: String,
    /// Address of the latter.
    pub address: IpAddr,
}
