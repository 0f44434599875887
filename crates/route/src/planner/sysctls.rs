//! Sysctls around a host's routes: forwarding, the hash, reverse paths, tuning of
//! its class, and those of the file.

use clearstream_schema::{
    fabric::{HashPolicy, HostRole, ReversePathFilter},
    routing::{NexthopTarget, RouteAction},
};

use super::{
    Planner,
    host::Draft,
    kernel::{HASH_INNER_SINCE, HASH_POLICY_IPV6_SINCE, HASH_POLICY_SINCE},
    neighbours, policy_number,
};

const SEED: &str = "net.ipv4.fib_multipath_hash_seed";

/// Adds a host's sysctls to its plan. Later ones override earlier ones: those of
/// the file come last.
pub(super) fn add(draft: &mut Draft<'_, '_>) {
    let planner = draft.planner;
    for (key, value, why) in &planner.tunings[draft.host.class].sysctls {
        set(draft, key, value, || why.clone());
    }
    if planner.fabric.class(draft.host).role == HostRole::Gateway {
        forwarding(draft);
    } else {
        hash(draft);
    }
    reverse_paths(draft);
    for (key, value, why) in neighbours::tables(draft) {
        set(draft, &key, &value, || why);
    }
    for (key, value) in &planner.fabric.class(draft.host).sysctls {
        let class = &planner.fabric.class(draft.host).name;
        set(draft, key, value, || format!("set by class {class}"));
    }
}

fn set(draft: &mut Draft<'_, '_>, key: &str, value: &str, why: impl FnOnce() -> String) {
    draft.routing.sysctls.insert(key.to_owned(), value.to_owned().into());
    draft.because(|| key.to_owned(), why);
}

/// A sysctl of an interface; a dot inside its name is written as `/` (sysctl(8)).
fn of_interface(family: &str, interface: &str, name: &str) -> String {
    format!("net.{family}.conf.{}.{name}", interface.replace('.', "/"))
}

fn has_family(draft: &Draft<'_, '_>, ipv6: bool) -> bool {
    let mut addresses = draft.routing.interfaces.iter().flat_map(|interface| &interface.addresses);
    addresses.any(|address| address.value.address.is_ipv6() == ipv6)
}

fn forwarding(draft: &mut Draft<'_, '_>) {
    if has_family(draft, false) {
        set(draft, "net.ipv4.ip_forward", "1", || "a gateway forwards between its networks".to_owned());
    }
    if has_family(draft, true) {
        set(draft, "net.ipv6.conf.all.forwarding", "1", || {
            "a gateway forwards between its networks; an interface that takes its default route from router advertisements needs accept_ra = 2 beside this (ip-sysctl)".to_owned()
        });
    }
}

/// Whether the host chooses among several gateways in a family.
fn chooses(draft: &Draft<'_, '_>, ipv6: bool) -> bool {
    let routing = &draft.routing;
    routing.routes.iter().filter(|route| route.destination.address.is_ipv6() == ipv6).any(
        |route| match &route.action {
            RouteAction::Gateways(hops) => hops.len() > 1,
            RouteAction::Nexthop(id) => routing
                .nexthops
                .iter()
                .any(|nexthop| nexthop.id == *id && matches!(nexthop.target, NexthopTarget::Group { .. })),
            _ => false,
        },
    )
}

/// Routes of the fabric that a host of a class takes part in.
fn routes_of<'p>(planner: &'p Planner<'_>, class: usize) -> impl Iterator<Item = usize> + 'p {
    let has = move |network: usize| planner.fabric.classes_on(network).any(|other| other == class);
    (0..planner.routes.len())
        .filter(move |route| planner.routes[*route].networks.iter().any(|network| has(*network)))
}

fn hash(draft: &mut Draft<'_, '_>) {
    let planner = draft.planner;
    let kernel = &planner.kernels[draft.host.class];
    let routes: Vec<usize> = routes_of(planner, draft.host.class).collect();
    let Some(policy) = routes.first().map(|route| planner.fabric.route(*route).0.hash_policy) else { return };
    let families = [("net.ipv4", false, HASH_POLICY_SINCE), ("net.ipv6", true, HASH_POLICY_IPV6_SINCE)];
    let mut has_choice = false;
    for (family, ipv6, since) in families {
        if !chooses(draft, ipv6) {
            continue;
        }
        has_choice = true;
        if kernel.has(since) && (policy != HashPolicy::Inner || kernel.has(HASH_INNER_SINCE)) {
            set(draft, &format!("{family}.fib_multipath_hash_policy"), policy_number(policy), || {
                match policy {
                HashPolicy::Layer3 => "addresses choose the gateway: one for each pair of hosts".to_owned(),
                HashPolicy::Layer4 => "addresses and ports choose the gateway: flows of one pair of hosts spread too (0 would keep them on one)".to_owned(),
                HashPolicy::Inner => "addresses inside a tunnel choose the gateway".to_owned(),
            }
            });
        }
    }
    let seed = routes.iter().find_map(|route| planner.routes[*route].seed);
    if let Some(seed) = seed.filter(|_| has_choice) {
        set(draft, SEED, &seed.to_string(), || {
            "one seed on all hosts: a flow and its reply hash to the same gateway".to_owned()
        });
    }
}

/// Settings that the plan omits because the kernel of a class is too old.
pub(super) fn left_out(planner: &Planner<'_>, class: usize) -> Option<String> {
    let kernel = &planner.kernels[class];
    let policy = routes_of(planner, class).map(|route| planner.fabric.route(route).0.hash_policy).next()?;
    let is_end = planner.fabric.file().classes[class].role != HostRole::Gateway;
    let (name, release) = (&planner.fabric.file().classes[class].name, kernel.release?);
    if !is_end {
        return None;
    }
    if !kernel.has(HASH_POLICY_SINCE) {
        return Some(format!(
            "{name}: Linux {release} has no hash policy, which came with {HASH_POLICY_SINCE}: its hosts spread flows by addresses or at random"
        ));
    }
    (policy == HashPolicy::Inner && !kernel.has(HASH_INNER_SINCE)).then(|| {
        format!(
            "{name}: Linux {release} has no hash policy for inner packets, which came with {HASH_INNER_SINCE}"
        )
    })
}

fn reverse_paths(draft: &mut Draft<'_, '_>) {
    let class = draft.planner.fabric.class(draft.host);
    let interfaces: Vec<String> =
        draft.routing.interfaces.iter().map(|interface| interface.name.clone()).collect();
    if let Some(filter) = class.rp_filter.filter(|_| has_family(draft, false)) {
        let (number, described) = match filter {
            ReversePathFilter::Off => ("0", "no filter"),
            ReversePathFilter::Strict => ("1", "the strict filter"),
            ReversePathFilter::Loose => ("2", "the loose filter"),
        };
        if filter != ReversePathFilter::Loose {
            set(draft, "net.ipv4.conf.all.rp_filter", "0", || {
                "the larger of all and the interface's own counts (ip-sysctl): only so does the interface's"
                    .to_owned()
            });
        }
        for interface in &interfaces {
            set(draft, &of_interface("ipv4", interface, "rp_filter"), number, || {
                format!("class {} requests {described}", class.name)
            });
        }
    } else if replies_by_another_link(draft) {
        for interface in &interfaces {
            set(draft, &of_interface("ipv4", interface, "rp_filter"), "2", || {
                "replies to what comes by one link leave by another: the strict filter would drop it"
                    .to_owned()
            });
        }
    }
    let marks = &draft.routing.connection_marks;
    let is_marked = |name: &&String| marks.iter().any(|mark| mark.interface == **name);
    let marked: Vec<String> = interfaces.iter().filter(is_marked).cloned().collect();
    for interface in &marked {
        set(draft, &of_interface("ipv4", interface, "src_valid_mark"), "1", || {
            "the reverse path lookup uses the packet's mark: a marked packet is validated by the table that routes its reply".to_owned()
        });
    }
}

/// Whether a remote network is behind gateways of two of the host's links: replies
/// leave over the first one.
fn replies_by_another_link(draft: &Draft<'_, '_>) -> bool {
    let planner = draft.planner;
    if planner.fabric.class(draft.host).role == HostRole::Gateway {
        return false;
    }
    let links = 0..planner.fabric.class(draft.host).links.len();
    let near = links.map(|link| planner.fabric.link_network(draft.host, link));
    let mut far: Vec<usize> = Vec::new();
    for near in near {
        for route in &planner.routes {
            let Some(end) = route.end(near) else { continue };
            let network = route.networks[1 - end];
            if far.contains(&network) {
                return true;
            }
            far.push(network);
        }
    }
    false
}
