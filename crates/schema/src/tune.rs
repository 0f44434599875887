//! Findings of a check of a host's settings.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BitRate, TimeSpan};

/// Name of the format.
pub const LINT_SCHEMA: &str = "clearstream.lint";

/// The path that settings are to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathGoal {
    /// Goodput wanted, all flows together.
    pub rate: BitRate,
    /// Round-trip time.
    pub rtt: TimeSpan,
    /// Parallel TCP flows.
    pub flow_count: u32,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information; no action needed.
    Note,
    /// No effect, waste, or surprising behaviour.
    Warning,
    /// Wrong: the kernel refuses it, or it harms the path or the host.
    Error,
}

/// The kind of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FindingClass {
    /// The line cannot be parsed, or is parsed with another meaning than intended.
    Syntax,
    /// No kernel known has this key.
    Unknown,
    /// The number is in another unit than the kernel's.
    Unit,
    /// The kernel refuses the value.
    Range,
    /// Values of one key in an order that is invalid.
    Order,
    /// The key is gone, or was never in the official kernel.
    Removed,
    /// No kernel reads the key.
    NoOp,
    /// Two settings of which one undoes the other.
    Contradiction,
    /// Harms what it was to help, or takes a protection away.
    Unsafe,
    /// Costs memory or time without effect.
    Wasteful,
    /// Too small or too large for the path given.
    Path,
    /// Not visible or not writable in this network namespace.
    Scope,
    /// Another file or program sets it, or will set it back.
    Provenance,
    /// Data crosses a node or a link that it need not cross.
    Locality,
    /// Packets take an unintended path, or have no route.
    Routing,
    /// Could not be checked.
    Unverifiable,
}

/// Line of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// The file as it was named.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// `KEY:CLASS:CAUSE`, the same in every run and version: what a mute list names.
    pub id: String,
    /// Sysctl by its dotted name, or `link.ATTRIBUTE`, `pcie`, `interrupts`; of
    /// routing `rule`, `route`, `table`, `gateway`, `return`.
    pub key: String,
    /// Kind.
    pub class: FindingClass,
    /// Severity.
    pub severity: Severity,
    /// The value that was found, when it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The problem, with the arithmetic.
    pub message: String,
    /// Suggested correction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Location of the setting, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Interface, when it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Host, when several were checked together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Source of the rule.
    pub source: String,
}

/// What a check of routing looked at; what it could not read is in `missing`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedRouting {
    /// Hosts.
    pub host_count: u64,
    /// Files of which something was understood; 0 for hosts that are live or captured.
    pub file_count: u64,
    /// Addresses of interfaces.
    pub address_count: u64,
    /// Routes that are known completely.
    pub route_count: u64,
    /// Routes of which the gateway, the table or the destination is not known: no finding depends on them.
    pub unknown_route_count: u64,
    /// Rules.
    pub rule_count: u64,
    /// Nexthop objects.
    pub nexthop_count: u64,
    /// Sysctls.
    pub sysctl_count: u64,
}

impl CheckedRouting {
    /// Settings of all kinds.
    pub fn setting_count(&self) -> u64 {
        self.address_count + self.route_count + self.rule_count + self.nexthop_count + self.sysctl_count
    }
}

/// All findings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LintReport {
    /// [`LINT_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Subject of the check: a host's name, or a file.
    pub subject: String,
    /// Kernel release that was assumed; absent when none was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The path that was assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<PathGoal>,
    /// Number of settings checked.
    pub setting_count: u64,
    /// The same by kind, of a check of routing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<CheckedRouting>,
    /// Findings, the most severe first.
    pub findings: Vec<Finding>,
    /// Findings that a mute list held back.
    pub muted_count: u64,
    /// Parts that could not be read, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}
