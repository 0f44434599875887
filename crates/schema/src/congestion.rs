//! Congestion controls of a host, and those that can be loaded into it.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

/// Directory of pinned congestion controls, each under its name; below the
/// root of the host.
pub const PIN_DIRECTORY: &str = "sys/fs/bpf/clearstream";

/// A congestion control that comes with ClearStream as a BPF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loadable {
    /// Name of the algorithm, which is also the kernel's name for its own.
    pub algorithm: &'static str,
    /// Name it is registered under, for `--congestion-control`. Not the
    /// kernel's: a module that is loaded later would be refused.
    pub name: &'static str,
}

/// All of them.
pub const LOADABLE: [Loadable; 1] = [Loadable { algorithm: "htcp", name: "bpf_htcp" }];

/// The congestion controls of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CongestionControls {
    /// Default for new connections of this network namespace.
    pub default: String,
    /// Registered by the kernel and its modules, or by other programs.
    pub kernel: Vec<String>,
    /// Registered by `clearstream cc load`.
    pub loaded: Vec<String>,
    /// Algorithms that `clearstream cc load` can add.
    pub loadable: Vec<String>,
}
