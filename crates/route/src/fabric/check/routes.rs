//! Validation of routes: between networks that gateways join, with options that
//! work there.

use clearstream_configfile::{Fault, did_you_mean, fault};
use clearstream_schema::fabric::{FabricFile, HashPolicy, HostRole, Multipath, NetworkKind, ReturnPath};
use clearstream_tune::KernelVersion;

use crate::{
    fabric::expand::Fabric,
    planner::kernel::{EQUAL_SEED_SINCE, GROUP_SINCE, RESILIENT_SINCE},
};

/// Tables that the kernel has for itself: unspecified, default, main, local
/// (rtnetlink(7)).
const RESERVED_TABLES: [u32; 4] = [0, 253, 254, 255];
/// Priority of the kernel's own rule for the main table.
const MAIN_PRIORITY: u32 = 32_766;
/// Route protocols up to this are those of the kernel and of administrators
/// (rtnetlink(7): unspecified, redirect, kernel, boot, static).
const LAST_COMMON_PROTOCOL: u8 = 4;

/// Networks and gateways of a route; gives the classes of its gateways.
pub(in crate::fabric) fn route(file: &FabricFile, index: usize) -> Result<Vec<usize>, Fault> {
    let route = &file.routes[index];
    let key = format!("route[{index}]");
    for (end, name) in route.between.iter().enumerate() {
        if !file.networks.iter().any(|network| network.name == *name) {
            let names = || file.networks.iter().map(|network| network.name.as_str());
            return fault(format!("{key}.between[{end}]"), unknown("network", name, names()));
        }
    }
    let [one, other] = &route.between;
    if one == other {
        return fault(format!("{key}.between"), "a route is between two networks: these are one");
    }
    let same = |earlier: &&clearstream_schema::fabric::FabricRoute| {
        earlier.between.contains(one) && earlier.between.contains(other)
    };
    if file.routes[..index].iter().any(|earlier| same(&earlier)) {
        let problem =
            format!("there is a route between \"{one}\" and \"{other}\" already: name all gateways there");
        return fault(format!("{key}.between"), problem);
    }
    if route.via.is_empty() {
        return fault(format!("{key}.via"), "a route goes over gateways: name their class");
    }
    let mut classes = Vec::new();
    for (number, name) in route.via.iter().enumerate() {
        let key = format!("{key}.via[{number}]");
        let Some(class) = file.classes.iter().position(|class| class.name == *name) else {
            let gateways = file.classes.iter().filter(|class| class.role == HostRole::Gateway);
            return fault(key, unknown("class of gateways", name, gateways.map(|class| class.name.as_str())));
        };
        if file.classes[class].role != HostRole::Gateway {
            return fault(key, format!("\"{name}\" is no class of gateways: write role = \"gateway\" there"));
        }
        for network in &route.between {
            if !file.classes[class].links.iter().any(|link| link.network == *network) {
                let problem = format!(
                    "gateways of \"{name}\" have no link on \"{network}\": they join \"{one}\" and \"{other}\" with one on each"
                );
                return fault(key, problem);
            }
        }
        if classes.contains(&class) {
            return fault(key, format!("\"{name}\" is named twice"));
        }
        classes.push(class);
    }
    Ok(classes)
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let hint = did_you_mean(name, known.clone());
    let known = known.collect::<Vec<_>>().join(", ");
    format!("there is no {what} \"{name}\"{hint} (known: {known})")
}

/// Numbers that the plan takes on hosts.
pub(in crate::fabric) fn numbers(fabric: &Fabric) -> Result<(), Fault> {
    let numbers = &fabric.file().numbers;
    let count = u32::try_from(fabric.gateways().len()).unwrap_or(u32::MAX);
    let fits = |first: u32, most: u32| first > 0 && first.checked_add(count).is_some_and(|end| end <= most);
    let tables = numbers.first_table..numbers.first_table.saturating_add(count);
    if !fits(numbers.first_table, u32::MAX) || RESERVED_TABLES.iter().any(|table| tables.contains(table)) {
        let problem = format!(
            "{count} tables from {} on meet one of the kernel's own (253 to 255): write 7001",
            numbers.first_table
        );
        return fault("numbers.first-table", problem);
    }
    if !fits(numbers.first_priority, MAIN_PRIORITY) {
        let problem = format!(
            "{count} rules from {} on do not come before the main table's at {MAIN_PRIORITY}: write 7001",
            numbers.first_priority
        );
        return fault("numbers.first-priority", problem);
    }
    if !fits(numbers.first_mark, u32::MAX) {
        return fault("numbers.first-mark", "marks start above zero: zero is no mark; write 7001");
    }
    if numbers.first_nexthop == 0 || numbers.first_nexthop > u32::MAX / 2 {
        return fault("numbers.first-nexthop", "ids of nexthop objects start above zero; write 7001");
    }
    if numbers.protocol <= LAST_COMMON_PROTOCOL {
        let problem = format!(
            "protocol {} is that of routes of the kernel or of administrators: the plan's could not be distinguished from them; write 117",
            numbers.protocol
        );
        return fault("numbers.protocol", problem);
    }
    if let Some(buckets) = numbers.bucket_count.filter(|buckets| u32::from(*buckets) < count) {
        let problem = format!(
            "{buckets} buckets for {count} gateways: each needs several; write {} or more, or nothing",
            count * 20
        );
        return fault("numbers.bucket-count", problem);
    }
    let watch = &fabric.file().watch;
    if watch.interval.0 == 0 || watch.timeout.0 == 0 || watch.down_count == 0 || watch.up_count == 0 {
        return fault("watch", "interval, timeout, down-count and up-count are above zero");
    }
    Ok(())
}

/// What a route requests, against the networks and hosts that it joins.
pub(in crate::fabric) fn routes(fabric: &Fabric) -> Result<(), Fault> {
    for index in 0..fabric.file().routes.len() {
        family(fabric, index)?;
        return_path(fabric, index)?;
        kernels(fabric, index)?;
        agreement(fabric, index)?;
    }
    if fabric.file().routes.is_empty() {
        return fault("route", "a fabric has at least one [[route]]");
    }
    Ok(())
}

/// Some family reaches from one side through a gateway to the other.
fn family(fabric: &Fabric, index: usize) -> Result<(), Fault> {
    let (route, networks) = fabric.route(index);
    let carried = |ipv6: bool| {
        fabric.route_gateways(index).any(|gateway| {
            networks.iter().all(|network| {
                let link = fabric.link_on(gateway.host, *network);
                link.is_some_and(|link| fabric.address(gateway.host, link, ipv6).is_some())
            })
        })
    };
    if carried(false) || carried(true) {
        return Ok(());
    }
    let problem = format!(
        "no gateway has addresses of one family on both \"{}\" and \"{}\"",
        route.between[0], route.between[1]
    );
    fault(format!("route[{index}].via"), problem)
}

fn return_path(fabric: &Fabric, index: usize) -> Result<(), Fault> {
    let (route, networks) = fabric.route(index);
    let key = format!("route[{index}].return-path");
    if route.hash_seed == Some(0) {
        return fault(
            format!("route[{index}].hash-seed"),
            "0 makes the kernel draw a seed of its own: write another number",
        );
    }
    if !matches!(route.return_path, ReturnPath::Alias | ReturnPath::ConnectionMark) {
        return Ok(());
    }
    let mut servers = 0;
    for network in networks {
        for class in fabric.classes_on(network) {
            if fabric.file().classes[class].role != HostRole::Storage {
                continue;
            }
            servers += 1;
            let name = &fabric.file().classes[class].name;
            let on = fabric.network(network);
            if route.return_path == ReturnPath::ConnectionMark && on.kind != NetworkKind::Ethernet {
                let problem = format!(
                    "network \"{}\" of \"{name}\" is no Ethernet: packets there do not show which gateway sent them; write return-path = \"alias\"",
                    on.name
                );
                return fault(key, problem);
            }
            let host = fabric.class_hosts(class).next();
            let has_aliases = host.is_none_or(|host| {
                let link = fabric.link_on(host, network).unwrap_or_default();
                [false, true].into_iter().all(|ipv6| {
                    fabric.address(host, link, ipv6).is_none() || !fabric.aliases(host, link, ipv6).is_empty()
                })
            });
            if route.return_path == ReturnPath::Alias && !has_aliases {
                let each = fabric.network_gateways(network).count();
                let problem = format!(
                    "\"{name}\" has no alias-addresses on \"{}\": write {each} for each host and family there",
                    on.name
                );
                return fault(key, problem);
            }
        }
    }
    if servers == 0 {
        let problem = "servers keep this return path, and no class of role \"storage\" is on either network";
        return fault(key, problem);
    }
    Ok(())
}

/// Hosts of a class are not configured with what their oldest kernel lacks.
fn kernels(fabric: &Fabric, index: usize) -> Result<(), Fault> {
    let (route, networks) = fabric.route(index);
    let needed = match route.multipath {
        Multipath::Resilient => Some((RESILIENT_SINCE, "multipath", "resilient groups")),
        Multipath::Group => Some((GROUP_SINCE, "multipath", "nexthop groups")),
        Multipath::Auto | Multipath::Classic => None,
    };
    let seed = (route.return_path == ReturnPath::EqualSeed).then_some((
        EQUAL_SEED_SINCE,
        "return-path",
        "net.ipv4.fib_multipath_hash_seed",
    ));
    for (since, key, what) in needed.into_iter().chain(seed) {
        for class in networks.into_iter().flat_map(|network| fabric.classes_on(network)) {
            let class = &fabric.file().classes[class];
            let kernel = class.kernel.as_ref().and_then(|text| text.parse::<KernelVersion>().ok());
            if class.role != HostRole::Gateway
                && let Some(kernel) = kernel.filter(|kernel| *kernel < since)
            {
                let problem = format!(
                    "{what} came with Linux {since} and \"{}\" has {kernel}: write \"auto\", or another",
                    class.name
                );
                return fault(format!("route[{index}].{key}"), problem);
            }
        }
    }
    Ok(())
}

/// Hash policy and seed are one for a whole host.
fn agreement(fabric: &Fabric, index: usize) -> Result<(), Fault> {
    let (route, networks) = fabric.route(index);
    for earlier in 0..index {
        let (other, others) = fabric.route(earlier);
        let shared = networks.iter().find(|network| others.contains(network));
        let Some(shared) = shared.map(|network| &fabric.network(*network).name) else { continue };
        if other.hash_policy != route.hash_policy {
            let policy = format!("{:?}", other.hash_policy).to_lowercase();
            let problem = format!(
                "hosts of \"{shared}\" have one hash policy for all routes, and route[{earlier}] has {policy}"
            );
            return fault(format!("route[{index}].hash-policy"), problem);
        }
        if let (Some(one), Some(seed)) = (other.hash_seed, route.hash_seed)
            && one != seed
        {
            let problem = format!(
                "hosts of \"{shared}\" have one hash seed for all routes, and route[{earlier}] has {one}"
            );
            return fault(format!("route[{index}].hash-seed"), problem);
        }
    }
    let layer3 = route.hash_policy == HashPolicy::Layer3 && route.return_path == ReturnPath::EqualSeed;
    let has_ipv6 = networks
        .iter()
        .all(|network| fabric.network(*network).prefixes.iter().any(|prefix| prefix.address.is_ipv6()));
    if layer3 && has_ipv6 {
        // net/ipv6/route.c, rt6_multipath_hash: policy 0 hashes the flow label,
        // which is another one in each direction.
        let problem = "with layer3 the kernel hashes the flow label of IPv6, which differs between request and reply: write layer4";
        return fault(format!("route[{index}].hash-policy"), problem);
    }
    Ok(())
}
