//! Routing configuration of one host: interfaces, nexthop objects, routes, rules,
//! connection marks and the sysctls around them. The planner generates it, the
//! renderers write it, readers of files, captures and live hosts return it,
//! and the linter checks it.

use std::{collections::BTreeMap, net::IpAddr};

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{fabric::InfinibandMode, prefix::Prefix};

pub mod files;
pub mod ip_arguments;
pub mod kernel;
pub mod table;
pub mod values;

/// Number of the main table (rtnetlink(7), `RT_TABLE_MAIN`).
pub const MAIN_TABLE: u32 = 254;

/// Routing configuration of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HostRouting {
    /// Host name; empty when files do not contain it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Interfaces with their addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<RoutingInterface>,
    /// Nexthop objects and groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nexthops: Vec<Nexthop>,
    /// Routes of all tables except `local`, and without those that the kernel
    /// makes for an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteEntry>,
    /// Routes that take some packets to their destination only, or that deliver to the
    /// host itself; without those that the kernel makes for an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub special_routes: Vec<SpecialRoute>,
    /// Policy rules except the kernel's own three (priorities 0, 32766, 32767).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleEntry>,
    /// Connections marked by the gateway that they came by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connection_marks: Vec<ConnectionMark>,
    /// Rules that replace the source address of forwarded packets; absent where
    /// the firewall was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_translations: Option<Vec<SourceTranslation>>,
    /// Sysctls by dotted name, a dot inside a name written as `/`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, Located<String>>,
    /// What the kernel it was read from has otherwise than that implies.
    #[serde(default, skip_serializing_if = "kernel::KernelFacts::is_empty")]
    pub kernel: kernel::KernelFacts,
    /// What its files say beside that, and what they leave open.
    #[serde(skip)]
    pub files: files::FileFacts,
}

/// Location of a setting in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// Path as it was given.
    pub file: String,
    /// Line, from 1; absent where the format has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What brings it into the kernel.
    #[serde(skip)]
    pub by: files::Loader,
}

/// A value with its location. Two are equal when the values are.
#[derive(Debug, Clone, Default, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Location; absent for what was planned or is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> From<T> for Located<T> {
    fn from(value: T) -> Self {
        Self { value, place: None }
    }
}

/// An interface that takes part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RoutingInterface {
    /// Name.
    pub name: String,
    /// Addresses with the length of their network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Located<Prefix>>,
    /// MTU, bytes of layer 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Located<u32>>,
    /// IPoIB mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infiniband_mode: Option<Located<InfinibandMode>>,
    /// Link address, `02:00:00:00:00:01`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_address: Option<String>,
}

/// A nexthop object (`ip nexthop`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Nexthop {
    /// Number, unique on the host.
    pub id: u32,
    /// A gateway or a group.
    pub target: NexthopTarget,
    /// Protocol number of its owner; 0 when unknown.
    #[serde(default)]
    pub protocol: u8,
    /// Location.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// Target of a nexthop object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NexthopTarget {
    /// One gateway on one interface.
    Gateway {
        /// Its address.
        via: IpAddr,
        /// The interface.
        interface: String,
    },
    /// A group of gateways.
    Group {
        /// Ids and weights, in order.
        members: Vec<GroupMember>,
        /// Set for a resilient group.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resilient: Option<Resilient>,
    },
    /// Discards.
    Blackhole,
}

/// A member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupMember {
    /// Nexthop id.
    pub id: u32,
    /// 1 to 256 (65536 on newer kernels).
    pub weight: u16,
}

/// Parameters of a resilient group (Documentation/networking/nexthop-group-resilient.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Resilient {
    /// Buckets.
    pub bucket_count: u16,
    /// Seconds without traffic after which a bucket may move.
    pub idle_seconds: u32,
    /// Seconds after which an unbalanced group moves busy buckets too; 0 for never.
    pub unbalanced_seconds: u32,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RouteEntry {
    /// Destination; length 0 for the default route.
    pub destination: Prefix,
    /// Table.
    pub table: u32,
    /// Metric; 0 when none is given (the kernel reads 0 as 1024 for IPv6).
    #[serde(default)]
    pub metric: u32,
    /// Action.
    pub action: RouteAction,
    /// Preferred source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// MTU of the route, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Protocol number of its owner (`proto`); 0 when unknown.
    #[serde(default)]
    pub protocol: u8,
    /// Location.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// A route that its entry alone does not describe: a reader of `routes` may take those for
/// what every packet to their destination takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SpecialRoute {
    /// What it shares with other routes; of one that delivers to the host, the action is
    /// its interface.
    pub route: RouteEntry,
    /// Only packets from here (`ip -6 route add ... from`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Prefix>,
    /// Only packets of this type of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_of_service: Option<u8>,
    /// It delivers to the host itself (`ip route add local`).
    #[serde(default)]
    pub is_local: bool,
}

/// Action of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteAction {
    /// On the link: the destination is a neighbour.
    Link {
        /// Interface.
        interface: String,
    },
    /// By one gateway, or several (classic multipath).
    Gateways(Vec<Hop>),
    /// By a nexthop object.
    Nexthop(u32),
    /// Discards silently.
    Blackhole,
    /// Rejects packets with ICMP unreachable.
    Unreachable,
    /// Rejects packets with ICMP prohibited.
    Prohibit,
    /// Goes on with the next rule.
    Throw,
}

impl RouteAction {
    /// Action of a route type without next hop, by its keyword in ip-route(8).
    pub fn of_type(keyword: &str) -> Option<Self> {
        match keyword {
            "blackhole" => Some(Self::Blackhole),
            "unreachable" => Some(Self::Unreachable),
            "prohibit" => Some(Self::Prohibit),
            "throw" => Some(Self::Throw),
            _ => None,
        }
    }

    /// Keyword of its route type; `None` for unicast routes.
    pub fn type_keyword(&self) -> Option<&'static str> {
        match self {
            Self::Link { .. } | Self::Gateways(_) | Self::Nexthop(_) => None,
            Self::Blackhole => Some("blackhole"),
            Self::Unreachable => Some("unreachable"),
            Self::Prohibit => Some("prohibit"),
            Self::Throw => Some("throw"),
        }
    }
}

/// A next hop of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Hop {
    /// Gateway.
    pub via: IpAddr,
    /// Interface; absent where the files leave it to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// 1 to 256.
    pub weight: u16,
    /// Location, when not on the route's own line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// A policy rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RuleEntry {
    /// Whether it is for IPv6.
    pub ipv6: bool,
    /// Priority; absent where the files leave it to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Selector.
    #[serde(default)]
    pub selector: RuleSelector,
    /// Action.
    pub action: RuleAction,
    /// Protocol number of its owner; 0 when unknown.
    #[serde(default)]
    pub protocol: u8,
    /// Location.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// Selector of a rule; an absent field matches all packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RuleSelector {
    /// Source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Prefix>,
    /// Destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Prefix>,
    /// Mark and its mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(u32, u32)>,
    /// Interface of arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Interface that the socket is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Other selectors, in the syntax of `ip rule`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other: Vec<String>,
    /// Inverted (`not`).
    #[serde(default)]
    pub inverted: bool,
}

/// Action of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RuleAction {
    /// Route lookup in a table.
    Table(u32),
    /// Any other action, in the syntax of `ip rule`: `blackhole`, `unreachable`, `goto 100`.
    Other(String),
}

/// A server marks connections that came by a gateway, and its replies carry the
/// mark, by which a rule chooses the table of that gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ConnectionMark {
    /// Interface of arrival.
    pub interface: String,
    /// Link address of the gateway; empty where it is to be learnt from the
    /// neighbours of the host.
    pub link_address: String,
    /// Name of the gateway, for people.
    pub gateway: String,
    /// The mark.
    pub mark: u32,
}

/// A rule that replaces the source address of forwarded packets: masquerade or
/// SNAT (nft(8), NAT STATEMENTS; RFC 3022).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SourceTranslation {
    /// Interface by which packets leave; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Sources that it applies to; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Prefix>,
    /// The new source; absent for an address of the output interface (masquerade).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<IpAddr>,
    /// Whether it is for IPv6; absent for both families.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<bool>,
    /// It depends on more than these, so that it may not apply.
    #[serde(default)]
    pub is_conditional: bool,
}
