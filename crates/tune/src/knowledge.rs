//! Table of known sysctls: one file, parsed once, strictly.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::LazyLock,
};

use clearstream_configfile::nearest;
use clearstream_schema::{
    plan::Effect,
    tune::{FindingClass, Severity},
};
use serde::Deserialize;

use crate::version::KernelVersion;

const TABLE: &str = include_str!("../knowledge/sysctls.toml");

/// Unit of a key's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    /// Bytes.
    Bytes,
    /// KiB.
    Kibibytes,
    /// Pages of the host's page size.
    Pages,
    /// Packets.
    Packets,
    /// Segments.
    Segments,
    /// Connections.
    Connections,
    /// Entries of a table.
    Entries,
    /// Port numbers.
    Ports,
    /// Other counts.
    Count,
    /// Percent.
    Percent,
    /// Exponent of a power of two.
    Shift,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Boolean, 0 or 1.
    Switch,
    /// Numbered mode.
    Choice,
    /// Bit mask.
    Mask,
    /// One name.
    Name,
    /// Several names.
    Names,
}

impl Unit {
    /// Whether values are integers.
    pub(crate) fn is_number(self) -> bool {
        !matches!(self, Self::Name | Self::Names | Self::Mask)
    }

    /// Name of the unit, for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Kibibytes => "KiB",
            Self::Pages => "pages",
            Self::Packets => "packets",
            Self::Segments => "segments",
            Self::Connections => "connections",
            Self::Entries => "entries",
            Self::Ports => "ports",
            Self::Percent => "%",
            Self::Shift => "(a power of two)",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
            Self::Count | Self::Switch | Self::Choice | Self::Mask | Self::Name | Self::Names => "",
        }
    }
}

/// Namespaces that have a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scope {
    /// Every network namespace.
    Namespace,
    /// Initial network namespace only.
    Host,
}

/// Two kernels between which a key appeared or disappeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bracket {
    /// Last kernel seen without the change.
    pub(crate) absent: KernelVersion,
    /// First kernel seen with it.
    pub(crate) present: KernelVersion,
    /// Exact release, where known.
    #[serde(default)]
    pub(crate) version: Option<KernelVersion>,
}

/// Default value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Default {
    /// First kernel with this default.
    pub(crate) from: KernelVersion,
    /// Text as read back, or the kernel's formula.
    pub(crate) value: String,
}

/// Range that the kernel accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Enforced {
    /// Minimum.
    pub(crate) min: i64,
    /// Maximum.
    pub(crate) max: i64,
}

/// Range that the kernel accepts but that is harmful.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sane {
    /// Applies to values above this.
    #[serde(default)]
    pub(crate) above: Option<i64>,
    /// Applies to values below this.
    #[serde(default)]
    pub(crate) below: Option<i64>,
    /// Applies to this value.
    #[serde(default)]
    pub(crate) equals: Option<i64>,
    /// Class of the finding.
    pub(crate) class: FindingClass,
    /// Last part of the finding's id.
    pub(crate) cause: String,
    /// Severity of the finding.
    pub(crate) severity: Severity,
    /// Reason.
    pub(crate) why: String,
    /// Suggested correction.
    pub(crate) advice: String,
}

impl Sane {
    /// Whether a value is in the range.
    pub(crate) fn holds(&self, value: i64) -> bool {
        self.above.is_some_and(|bound| value > bound)
            || self.below.is_some_and(|bound| value < bound)
            || self.equals == Some(value)
    }
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Key {
    /// Dotted name.
    pub name: String,
    /// Unit of each value.
    pub(crate) unit: Unit,
    /// Number of fields of a value.
    #[serde(default = "one")]
    pub(crate) count: usize,
    /// Namespaces that have it.
    pub(crate) scope: Scope,
    /// First kernel seen in which every namespace has it.
    #[serde(default)]
    pub(crate) namespace_since: Option<KernelVersion>,
    /// When a change takes effect.
    pub(crate) effect: Effect,
    /// Kernel in which it appeared.
    #[serde(default)]
    pub(crate) since: Option<Bracket>,
    /// Kernel in which it was removed.
    #[serde(default)]
    pub(crate) removed: Option<Bracket>,
    /// First kernel in which it has no effect.
    #[serde(default)]
    pub(crate) no_op: Option<KernelVersion>,
    /// Source of the key, where no official kernel has it (`vendor kernels`).
    #[serde(default)]
    pub(crate) foreign: Option<String>,
    /// Replacement.
    #[serde(default)]
    pub(crate) successor: Option<String>,
    /// Defaults by kernel, ascending.
    #[serde(default)]
    pub(crate) defaults: Vec<Default>,
    /// Range that the kernel accepts.
    #[serde(default)]
    pub(crate) enforced: Option<Enforced>,
    /// Harmful ranges.
    #[serde(default)]
    pub(crate) sane: Vec<Sane>,
    /// How to choose a value.
    #[serde(default)]
    pub(crate) formula: Option<String>,
    /// Effect, as a phrase.
    pub(crate) does: String,
    /// Source of the row.
    pub(crate) source: String,
}

fn one() -> usize {
    1
}

impl Key {
    /// Returns the default value in a kernel.
    pub fn default_at(&self, kernel: KernelVersion) -> Option<&str> {
        let row = self.defaults.iter().rev().find(|default| default.from <= kernel)?;
        Some(row.value.as_str())
    }

    /// Whether network namespaces of this kernel have it.
    pub(crate) fn is_per_namespace(&self, kernel: Option<KernelVersion>) -> bool {
        let old = self.namespace_since.zip(kernel).is_some_and(|(since, kernel)| kernel < since);
        self.scope == Scope::Namespace && !old
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    key: Vec<Key>,
    others: Others,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Others {
    names: Vec<String>,
}

/// Table of keys, with lookups.
#[derive(Debug)]
pub struct Knowledge {
    keys: HashMap<String, Key>,
    others: HashSet<String>,
    /// Names by the part after the last dot, for keys with a wrong prefix.
    by_last: BTreeMap<String, String>,
}

static KNOWLEDGE: LazyLock<Knowledge> = LazyLock::new(|| {
    // The file is embedded and a test parses it: failure is a bug of the program.
    #[allow(clippy::expect_used)]
    Knowledge::parse(TABLE).expect("the embedded table is read by a test")
});

impl Knowledge {
    /// Returns the embedded table.
    pub fn embedded() -> &'static Self {
        &KNOWLEDGE
    }

    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let table: Table = toml::from_str(text)?;
        let mut by_last = BTreeMap::new();
        for name in table.key.iter().map(|key| &key.name).chain(&table.others.names) {
            if let Some((_, last)) = name.rsplit_once('.') {
                by_last.entry(last.to_owned()).or_insert_with(|| name.clone());
            }
        }
        Ok(Self {
            keys: table.key.into_iter().map(|key| (key.name.clone(), key)).collect(),
            others: table.others.names.into_iter().collect(),
            by_last,
        })
    }

    /// Returns the row of a key.
    pub(crate) fn key(&self, name: &str) -> Option<&Key> {
        self.keys.get(name)
    }

    /// Returns all rows.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.values()
    }

    /// Whether some known kernel has a key of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.keys.contains_key(name) || self.others.contains(name)
    }

    /// Whether the table is complete for the folder of this key: directly below
    /// `net.core` and `net.ipv4`.
    pub(crate) fn covers(&self, name: &str) -> bool {
        ["net.core.", "net.ipv4."]
            .iter()
            .any(|prefix| name.strip_prefix(prefix).is_some_and(|rest| !rest.contains('.')))
    }

    /// Returns the most similar key, for a suggested correction.
    pub(crate) fn suggest(&self, name: &str) -> Option<&str> {
        let plain: String =
            name.chars().map(|c| if c == ' ' || c == '-' || c == '/' { '_' } else { c }).collect();
        let plain = plain.replace("net_", "net.").replace("ipv4_", "ipv4.").replace("core_", "core.");
        if plain != name && self.has(&plain) {
            return self.name_of(&plain);
        }
        let last = plain.rsplit('.').next().unwrap_or_default();
        if let Some(full) = self.by_last.get(last) {
            return Some(full);
        }
        let near = nearest(last, self.by_last.keys().map(String::as_str))?;
        self.by_last.get(near).map(String::as_str)
    }

    fn name_of(&self, name: &str) -> Option<&str> {
        self.keys.get(name).map(|key| key.name.as_str()).or_else(|| self.others.get(name).map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let table: Table = toml::from_str(TABLE).unwrap();
        let mut names = HashSet::new();
        for key in &table.key {
            let name = &key.name;
            assert!(names.insert(name.clone()), "{name} stands there twice");
            assert!(key.defaults.is_sorted_by_key(|default| default.from), "{name}: defaults ascend");
            assert!(!key.does.is_empty() && !key.source.is_empty(), "{name}");
            for bracket in key.since.iter() {
                assert!(bracket.absent < bracket.present, "{name}");
            }
            for bracket in key.removed.iter() {
                assert!(bracket.present < bracket.absent, "{name}");
                assert!(bracket.version.is_none_or(|at| bracket.present < at && at <= bracket.absent));
            }
            for sane in &key.sane {
                assert!(key.unit.is_number(), "{name}");
                let bounds = [sane.above, sane.below, sane.equals];
                assert_eq!(bounds.iter().flatten().count(), 1, "{name}: one bound in each range");
            }
        }
        for name in &table.others.names {
            assert!(names.insert(name.clone()), "{name} stands there twice");
        }
    }

    #[test]
    fn refuses_a_table_with_a_slip() {
        let row = "name = \"a.b\"\nunit = \"bytes\"\nscope = \"host\"\neffect = \"now\"\ndoes = \"x\"\nsource = \"y\"\n";
        let table = |extra: &str| format!("[[key]]\n{row}{extra}[others]\nnames = []\n");
        assert!(Knowledge::parse(&table("")).is_ok());
        for slip in ["unti = \"bytes\"\n", "no-op = \"soon\"\n", "enforced = { min = 1 }\n"] {
            assert!(Knowledge::parse(&table(slip)).is_err(), "{slip}");
        }
    }

    /// Defaults that other sources state: socket(7), ip-sysctl.rst of 6.18.
    #[test]
    fn defaults_go_by_kernel() {
        let known = Knowledge::embedded();
        let at = |name: &str, kernel: &str| known.key(name).unwrap().default_at(kernel.parse().unwrap());
        assert_eq!(at("net.core.rmem_max", "6.12.117"), Some("212992"));
        assert_eq!(at("net.core.rmem_max", "6.18.44"), Some("4194304"));
        assert_eq!(at("net.core.somaxconn", "4.18"), Some("128"));
        assert_eq!(at("net.core.somaxconn", "5.4"), Some("4096"));
        assert_eq!(at("net.ipv4.tcp_tw_reuse", "4.14"), Some("0"));
        assert_eq!(at("net.ipv4.tcp_tw_reuse", "4.18"), Some("2"));
        assert_eq!(at("net.core.netdev_budget_usecs", "4.11"), None);
    }

    #[test]
    fn finds_what_was_meant() {
        let known = Knowledge::embedded();
        for (typed, meant) in [
            ("net.ipv4.tcp rmem", "net.ipv4.tcp_rmem"),
            ("net.ipv4.tcp congestion control", "net.ipv4.tcp_congestion_control"),
            ("net.ipv4.tcp-rmem", "net.ipv4.tcp_rmem"),
            ("net.ipv4.rmem_max", "net.core.rmem_max"),
            ("net.core.tcp_rmem", "net.ipv4.tcp_rmem"),
            ("net.ipv4.tcp_timestamp", "net.ipv4.tcp_timestamps"),
            ("net.ipv4.tcp_wnem", "net.ipv4.tcp_wmem"),
            ("net.core.netdev_max_baclkog", "net.core.netdev_max_backlog"),
        ] {
            assert_eq!(known.suggest(typed), Some(meant), "{typed}");
        }
        assert_eq!(known.suggest("net.ipv4.quite_another_thing"), None);
    }
}
