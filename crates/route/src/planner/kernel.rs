//! Kernel requirements of a host's routing: releases and options, and which of them
//! a kernel lacks.

use std::collections::BTreeSet;

use clearstream_schema::{
    fabric::{Multipath, ReturnPath},
    routing::{HostRouting, NexthopTarget, RouteAction},
};
use clearstream_tune::{KernelVersion, kernel_config};

/// Nexthop objects and groups: `ip nexthop` (Linux 5.3).
pub const GROUP_SINCE: KernelVersion = KernelVersion::new(5, 3, 0);
/// Resilient nexthop groups (Linux 5.13, Documentation/networking/nexthop-group-resilient.rst).
pub const RESILIENT_SINCE: KernelVersion = KernelVersion::new(5, 13, 0);
/// `net.ipv4.fib_multipath_hash_seed` (Linux 6.11).
pub const EQUAL_SEED_SINCE: KernelVersion = KernelVersion::new(6, 11, 0);
/// `net.ipv4.fib_multipath_hash_policy` (Linux 4.12).
pub const HASH_POLICY_SINCE: KernelVersion = KernelVersion::new(4, 12, 0);
/// `net.ipv6.fib_multipath_hash_policy` (Linux 4.17).
pub const HASH_POLICY_IPV6_SINCE: KernelVersion = KernelVersion::new(4, 17, 0);
/// Policy 2, addresses of the inner packet (Linux 5.3).
pub const HASH_INNER_SINCE: KernelVersion = KernelVersion::new(5, 3, 0);

/// Known features of a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelFeatures {
    /// Its release; one with everything is assumed when absent.
    pub release: Option<KernelVersion>,
    /// Options that are built in or modules (`CONFIG_IP_MULTIPLE_TABLES`), where
    /// its configuration is known.
    pub options: Option<BTreeSet<String>>,
}

impl KernelFeatures {
    /// From a release as `uname -r` prints it, and the text of a configuration
    /// (`/boot/config-*`, `/proc/config.gz` unpacked).
    pub fn read(release: Option<&str>, configuration: Option<&str>) -> Self {
        let options = configuration.map(|text| {
            let lines = text.lines().filter_map(kernel_config::read_line);
            lines.filter(|(name, value)| kernel_config::is_set(name, value)).map(|(name, _)| name).collect()
        });
        Self { release: release.and_then(|text| text.parse().ok()), options }
    }

    fn is_at_least(&self, since: KernelVersion) -> bool {
        self.release.is_none_or(|release| release >= since)
    }

    /// Requirements of a host's routing that this kernel is known to lack.
    pub fn missing(&self, routing: &HostRouting) -> Vec<KernelNeed> {
        let lacks = |need: &KernelNeed| match need.since {
            Some(since) => !self.is_at_least(since),
            None => self.options.as_ref().is_some_and(|options| !options.contains(need.name)),
        };
        needs(routing).into_iter().filter(lacks).collect()
    }

    /// Whether the kernel has a release's feature.
    pub fn has(&self, since: KernelVersion) -> bool {
        self.is_at_least(since)
    }
}

/// An option or a feature of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelNeed {
    /// `CONFIG_IP_MULTIPLE_TABLES`, or what the release brought.
    pub name: &'static str,
    /// First release that has it; absent for an option.
    pub since: Option<KernelVersion>,
    /// What needs it.
    pub what_for: &'static str,
}

/// Kernel requirements of a host's routing.
pub fn needs(routing: &HostRouting) -> Vec<KernelNeed> {
    let mut needs = Vec::new();
    let mut option = |name, what_for| needs.push(KernelNeed { name, since: None, what_for });
    let rules = |ipv6: bool| routing.rules.iter().any(|rule| rule.ipv6 == ipv6);
    if rules(false) || rules(true) {
        option("CONFIG_IP_ADVANCED_ROUTER", "policy rules");
    }
    if rules(false) {
        option("CONFIG_IP_MULTIPLE_TABLES", "a table for each gateway");
    }
    if rules(true) {
        option("CONFIG_IPV6_MULTIPLE_TABLES", "a table for each gateway");
    }
    let is_group = |target: &NexthopTarget| matches!(target, NexthopTarget::Group { .. });
    let is_classic = |action: &RouteAction| matches!(action, RouteAction::Gateways(hops) if hops.len() > 1);
    let groups = routing.nexthops.iter().any(|nexthop| is_group(&nexthop.target));
    let classic =
        routing.routes.iter().any(|route| route.destination.address.is_ipv4() && is_classic(&route.action));
    if groups || classic {
        option("CONFIG_IP_ROUTE_MULTIPATH", "several gateways for one destination");
    }
    if !routing.connection_marks.is_empty() {
        option("CONFIG_NF_CONNTRACK", "connections that are marked");
        option("CONFIG_NF_CONNTRACK_MARK", "connections that are marked");
        option("CONFIG_NF_TABLES", "the table that marks connections");
        option("CONFIG_NFT_CT", "the table that marks connections");
    }
    let mut release = |name, since, what_for| {
        needs.push(KernelNeed { name, since: Some(since), what_for });
    };
    if !routing.nexthops.is_empty() {
        release("nexthop objects", GROUP_SINCE, "gateways that are replaced in one step");
    }
    let is_resilient =
        |target: &NexthopTarget| matches!(target, NexthopTarget::Group { resilient: Some(_), .. });
    if routing.nexthops.iter().any(|nexthop| is_resilient(&nexthop.target)) {
        release("resilient nexthop groups", RESILIENT_SINCE, "flows that stay on healthy gateways");
    }
    if routing.sysctls.contains_key("net.ipv4.fib_multipath_hash_seed") {
        release("net.ipv4.fib_multipath_hash_seed", EQUAL_SEED_SINCE, "equal choices on both sides");
    }
    needs
}

/// Multipath form for a kernel, and the reason.
pub(super) fn multipath(
    requested: Multipath,
    return_path: ReturnPath,
    kernel: &KernelFeatures,
) -> (Multipath, String) {
    match requested {
        Multipath::Auto => {}
        requested => return (requested, "the fabric requests it".to_owned()),
    }
    let release = kernel.release.map(|release| release.to_string()).unwrap_or_default();
    if !kernel.has(GROUP_SINCE) {
        let why = format!("Linux {release} has no nexthop objects, they came with {GROUP_SINCE}");
        return (Multipath::Classic, why);
    }
    if return_path == ReturnPath::EqualSeed {
        let why = "both sides make the same choice by hash thresholds; buckets of a resilient group depend on what came before";
        return (Multipath::Group, why.to_owned());
    }
    if !kernel.has(RESILIENT_SINCE) {
        let why = format!("Linux {release} has no resilient groups, they came with {RESILIENT_SINCE}");
        return (Multipath::Group, why);
    }
    (
        Multipath::Resilient,
        "flows of healthy gateways stay where they are when one goes or returns".to_owned(),
    )
}
