//! A fabric: two or more networks, the gateways between them, and the classes
//! of hosts on each, as one TOML file describes them.

use std::collections::BTreeMap;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BitRate, TimeSpan, prefix::Prefix};

/// Name of the format.
pub const FABRIC_SCHEMA: &str = "clearstream.fabric";

/// A fabric file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FabricFile {
    /// `clearstream.fabric`.
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Short name: letters, digits and `-`.
    pub name: String,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Networks; at least two.
    #[serde(rename = "network")]
    pub networks: Vec<FabricNetwork>,
    /// Classes of hosts, gateways too.
    #[serde(rename = "class")]
    pub classes: Vec<HostClass>,
    /// Routes between networks.
    #[serde(rename = "route")]
    pub routes: Vec<FabricRoute>,
    /// Numbers that the plan may take on each host.
    #[serde(default)]
    pub numbers: OwnedNumbers,
    /// Settings of `route watch`: how failed gateways are detected.
    #[serde(default)]
    pub watch: WatchSettings,
    /// The path that the tuning of classes is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<FabricPath>,
}

/// A path over the gateways, as far as tuning needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FabricPath {
    /// Goodput wanted of one host, all its flows together.
    pub rate: BitRate,
    /// Round-trip time.
    pub rtt: TimeSpan,
    /// TCP flows of one host at a time.
    #[serde(default = "one_flow")]
    pub flow_count: u32,
}

fn one_flow() -> u32 {
    1
}

/// A network: hosts on it reach each other without a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FabricNetwork {
    /// Name, unique in the file.
    pub name: String,
    /// Its prefixes, IPv4, IPv6 or both: `["10.100.0.0/16", "fd64::/64"]`.
    pub prefixes: Vec<Prefix>,
    /// Link type.
    #[serde(default)]
    pub kind: NetworkKind,
    /// IPoIB mode; for `kind = "infiniband"` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infiniband_mode: Option<InfinibandMode>,
    /// MTU of every interface on it, bytes of layer 3 (default: unchanged).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// Link type of a network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkKind {
    /// Frames carry an Ethernet source address, by which a server can distinguish gateways.
    #[default]
    Ethernet,
    /// IP over InfiniBand: no Ethernet source address to match.
    Infiniband,
    /// Any other (Aries, tunnels); nothing is assumed of its link addresses.
    Other,
}

/// Mode of IP over InfiniBand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InfinibandMode {
    /// Reliable connections, MTU up to 65520 bytes.
    Connected,
    /// Datagrams, MTU up to 4092 bytes (2044 on a fabric with 2 KiB MTU).
    Datagram,
}

/// Hosts that get the same routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostClass {
    /// Name, unique in the file.
    pub name: String,
    /// Role.
    pub role: HostRole,
    /// Host names; brackets count up: `compute-[0001-4096]`, `sn[1-6]`, `sn[1-3,7]`,
    /// `r[1-4]n[01-16]`, where the last bracket counts fastest.
    pub hosts: Vec<String>,
    /// Their interfaces in the fabric: one for end hosts, two or more for gateways.
    #[serde(rename = "link")]
    pub links: Vec<ClassLink>,
    /// Fraction of a gateway's flows relative to the others, 1 to 256. Gateways only.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: u16,
    /// The gateways keep connection state (firewall, NAT) and need to see both
    /// directions of a flow. Gateways only.
    #[serde(default)]
    pub stateful: bool,
    /// Reverse path filter of these hosts' interfaces in the fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rp_filter: Option<ReversePathFilter>,
    /// Profile that `tune plan` applies to them: `wan`, `lan`, `storage`, `latency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<String>,
    /// Sysctls of their own, by dotted name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Oldest kernel among them, as `uname -r` prints it: no newer feature is planned
    /// for. Absent: all features known here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

fn one() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requests a reference")]
fn is_one(weight: &u16) -> bool {
    *weight == 1
}

/// Role of the hosts of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostRole {
    /// Serves data.
    Storage,
    /// Forwards between networks.
    Gateway,
    /// Computes.
    Compute,
    /// People log in there.
    Login,
}

/// An interface of every host of a class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClassLink {
    /// Name of the network.
    pub network: String,
    /// Interface name on the hosts.
    pub interface: String,
    /// Addresses without prefix length, one pattern per family, with as many
    /// values as the class has hosts, in their order: brackets count
    /// (`10.10.0.[11-16]`, `10.100.[16-31].[1-254]`, `fd64::[1-4096]`, where the
    /// last bracket counts fastest; IPv6 counts in hexadecimal), or a start
    /// (`10.100.16.1+`) counts up by one. Several patterns of one family follow
    /// one another.
    pub addresses: Vec<String>,
    /// One further address per gateway for the alias return path, in the order
    /// of the gateways of this network's routes, as patterns with (hosts x gateways) values; each host
    /// takes as many consecutive ones as there are gateways.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alias_addresses: Vec<String>,
    /// Link addresses (MAC) by host, for the connection mark of the return path;
    /// patterns as `addresses`. Gateways only; learnt from neighbours where absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub link_addresses: Vec<String>,
}

/// Reverse path filter (`rp_filter`, ip-sysctl).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReversePathFilter {
    /// 0: no check.
    Off,
    /// 1: the best route back must leave by the interface of arrival (RFC 3704 strict).
    Strict,
    /// 2: some route back must exist (RFC 3704 loose).
    Loose,
}

/// Networks that reach each other over gateways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FabricRoute {
    /// Names of two networks.
    pub between: [String; 2],
    /// Classes of gateways that carry it, in the order of the next hops.
    pub via: Vec<String>,
    /// Return path: how replies reach the gateway that the request came by.
    #[serde(default)]
    pub return_path: ReturnPath,
    /// Form in which several next hops are written into the kernel.
    #[serde(default)]
    pub multipath: Multipath,
    /// Fields that are hashed to choose a gateway.
    #[serde(default)]
    pub hash_policy: HashPolicy,
    /// Seed of the hash (`fib_multipath_hash_seed`), for equal-seed return paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_seed: Option<u32>,
}

/// Return path: how replies reach the gateway that the request came by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReturnPath {
    /// Chosen by the planner, with the reason in the plan.
    #[default]
    Auto,
    /// Multipath on both sides: about (n-1)/n of the flows return by another gateway.
    None,
    /// The servers have an address per gateway, with a rule and a table each;
    /// clients choose the gateway by the address.
    Alias,
    /// The servers mark a connection by the link address of the gateway it came by.
    ConnectionMark,
    /// Equal hash seeds and orders on both sides, and clients that bind their ports.
    EqualSeed,
}

/// Form in which several next hops are written into the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Multipath {
    /// Resilient where the kernel has it (5.13), else group (5.3), else classic.
    #[default]
    Auto,
    /// A resilient nexthop group: a flow moves only when its gateway goes.
    Resilient,
    /// A nexthop group with hash thresholds.
    Group,
    /// One route with several next hops.
    Classic,
}

/// Fields that are hashed to choose a next hop (`fib_multipath_hash_policy`, ip-sysctl).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HashPolicy {
    /// 0: addresses only, so one gateway per pair of hosts.
    Layer3,
    /// 1: addresses, protocol and ports.
    #[default]
    Layer4,
    /// 2: addresses of the inner packet of a tunnel.
    Inner,
}

/// Numbers that the plan may take on each host; all others stay untouched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct OwnedNumbers {
    /// First routing table; one per gateway follows.
    pub first_table: u32,
    /// First rule priority.
    pub first_priority: u32,
    /// First nexthop id; groups follow the gateways.
    pub first_nexthop: u32,
    /// First connection mark; one per gateway follows.
    pub first_mark: u32,
    /// Protocol number of the routes (`ip route ... proto 117`), by which they are distinguished from others.
    pub protocol: u8,
    /// Buckets of a resilient group (default: as many as give every gateway the
    /// fraction of its weight, 120 or more, and twenty for each gateway or more).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket_count: Option<u16>,
    /// Seconds without traffic after which a bucket of a resilient group may move.
    pub idle_seconds: u32,
    /// Seconds after which a gateway that came back gets its share of a resilient
    /// group even if all its buckets are busy: flows of the other gateways move to
    /// it once. 0 for never. Groups over gateways that keep state have 0, because
    /// a flow that moves would be dropped there.
    pub unbalanced_seconds: u32,
}

impl Default for OwnedNumbers {
    fn default() -> Self {
        Self {
            first_table: 7001,
            first_priority: 7001,
            first_nexthop: 7001,
            first_mark: 7001,
            protocol: 117,
            bucket_count: None,
            idle_seconds: 60,
            unbalanced_seconds: 60,
        }
    }
}

/// Probing and decision settings of `route watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WatchSettings {
    /// Time between rounds; a round probes one remote host through every gateway.
    /// Large fabrics probe less often, see `probe-limit`.
    pub interval: TimeSpan,
    /// Timeout of a probe.
    pub timeout: TimeSpan,
    /// Consecutive failed rounds after which a gateway is withdrawn.
    pub down_count: u32,
    /// Consecutive successful rounds after which it is restored; doubled for each
    /// recent failure (flap damping).
    pub up_count: u32,
    /// Remote hosts that are probed round-robin, so that one dead host does not withdraw a gateway.
    pub target_count: u32,
    /// Percentage of the probes that a gateway may lose; one that loses
    /// more of the last `loss-window` is withdrawn. 0 for no limit.
    pub loss_percent: u32,
    /// Probes over which the loss is judged.
    pub loss_window: u32,
    /// Port on which the watches of all hosts probe each other, by UDP
    /// and by TCP alternately.
    pub port: u16,
    /// Probes per second through one gateway, and to one host, that all hosts of
    /// the fabric together may cause while nothing fails.
    pub probe_limit: u32,
}

impl Default for WatchSettings {
    fn default() -> Self {
        let milliseconds = TimeSpan::from_millis;
        Self {
            interval: milliseconds(20),
            timeout: milliseconds(60),
            down_count: 3,
            up_count: 100,
            target_count: 3,
            loss_percent: 5,
            loss_window: 200,
            port: 7117,
            probe_limit: 10_000,
        }
    }
}
