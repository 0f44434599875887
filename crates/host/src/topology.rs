//! Processing units, cores, packages, last-level caches and NUMA nodes
//! (Documentation/admin-guide/cputopology.rst, Documentation/ABI/stable/sysfs-devices-node).

use std::collections::{BTreeMap, BTreeSet};

use clearstream_schema::host::{LlcGroup, NumaNode, Package, ProcessingUnit};

use crate::{
    missing::Missing,
    parse::{ParseError, cpuset, text},
    root::HostRoot,
};

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";

/// Processors and nodes of the host.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    pub(crate) nodes: Vec<NumaNode>,
    pub(crate) packages: Vec<Package>,
    pub(crate) llc_groups: Vec<LlcGroup>,
    pub(crate) l2_cache_bytes: Option<u64>,
    pub(crate) processing_units: Vec<ProcessingUnit>,
}

/// Reads the topology; `allowed` are the processing units that this process may run on,
/// all when unknown.
pub(crate) fn read(root: &HostRoot, allowed: Option<&[u32]>, missing: &mut Missing) -> Topology {
    let online = missing.keep("online processing units", root.parse(&format!("{CPU}/online"), some_cores));
    let present = present(root, missing);
    let online = online.unwrap_or_else(|| present.clone());
    let nodes = nodes(root, &online, missing);
    let mut node_of: BTreeMap<u32, u32> = BTreeMap::new();
    for node in &nodes {
        node_of.extend(node.cores.iter().map(|&core| (core, node.node)));
    }
    let processing_units: Vec<ProcessingUnit> = present
        .into_iter()
        .map(|core| {
            let online = online.binary_search(&core).is_ok();
            let node = node_of.get(&core).copied();
            let allowed = online && allowed.is_none_or(|allowed| allowed.binary_search(&core).is_ok());
            processing_unit(root, core, online, node, allowed, missing)
        })
        .collect();
    let llc_groups = llc_groups(root, &processing_units, missing);
    let packages = packages(&processing_units);
    let l2_cache_bytes = l2_cache_bytes(root, &processing_units, &packages);
    Topology { nodes, packages, llc_groups, l2_cache_bytes, processing_units }
}

/// Parses a list of cores that cannot be empty on a running host.
fn some_cores(text: &str) -> Result<Vec<u32>, ParseError> {
    let cores = cpuset::list(text)?;
    if cores.is_empty() { Err(ParseError::new("at least one core", text.trim())) } else { Ok(cores) }
}

/// Processing units that exist, online or not.
fn present(root: &HostRoot, missing: &mut Missing) -> Vec<u32> {
    if let Some(present) = missing.keep("processing units", root.parse(&format!("{CPU}/present"), some_cores))
    {
        return present;
    }
    numbered(root, CPU, "cpu")
}

/// Numbers of the entries `cpu0`, `node3` of a directory, ascending.
fn numbered(root: &HostRoot, folder: &str, prefix: &str) -> Vec<u32> {
    let names = root.list(folder).unwrap_or_default();
    let mut numbers: Vec<u32> = names
        .iter()
        .filter_map(|name| name.strip_prefix(prefix)?.parse().ok())
        .filter(|&number| number <= cpuset::LARGEST_CORE)
        .collect();
    numbers.sort_unstable();
    numbers
}

fn processing_unit(
    root: &HostRoot,
    core: u32,
    online: bool,
    node: Option<u32>,
    allowed: bool,
    missing: &mut Missing,
) -> ProcessingUnit {
    let mut unit =
        ProcessingUnit { core, online, package: None, node, core_id: None, siblings: vec![core], allowed };
    if !online {
        // The topology folder vanishes with an offline unit; the node link remains.
        unit.node = numbered(root, &format!("{CPU}/cpu{core}"), "node").first().copied();
        return unit;
    }
    let folder = format!("{CPU}/cpu{core}/topology");
    let part = || format!("topology of processing unit {core}");
    unit.package =
        missing.keep(part(), root.known_number(&format!("{folder}/physical_package_id"))).flatten();
    unit.core_id = missing.keep(part(), root.known_number(&format!("{folder}/core_id"))).flatten();
    // Both names have the same list; the first is deprecated but older.
    let siblings = root.parse(&format!("{folder}/thread_siblings_list"), cpuset::list);
    let siblings = match siblings {
        Err(error) if error.is_absent() => root.parse(&format!("{folder}/core_cpus_list"), cpuset::list),
        other => other,
    };
    if let Some(siblings) = missing.keep(part(), siblings)
        && siblings.contains(&core)
    {
        unit.siblings = siblings;
    }
    unit
}

fn packages(units: &[ProcessingUnit]) -> Vec<Package> {
    let mut packages: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for unit in units {
        if let Some(package) = unit.package {
            packages.entry(package).or_default().push(unit.core);
        }
    }
    packages.into_iter().map(|(package, cores)| Package { package, cores }).collect()
}

/// Groups by the highest cache level. Units in an earlier group are skipped: 1024 units cost as many
/// reads as there are groups.
fn llc_groups(root: &HostRoot, units: &[ProcessingUnit], missing: &mut Missing) -> Vec<LlcGroup> {
    let mut groups: Vec<LlcGroup> = Vec::new();
    let mut grouped: BTreeSet<u32> = BTreeSet::new();
    for unit in units.iter().filter(|unit| unit.online) {
        if grouped.contains(&unit.core) {
            continue;
        }
        let part = || format!("last-level cache of processing unit {}", unit.core);
        match last_level(root, unit.core) {
            Some(Ok(group)) => {
                grouped.extend(&group.cores);
                groups.push(group);
            }
            Some(Err(error)) => missing.note(part(), error.path(), error.reason()),
            None => {
                let source = format!("/{CPU}/cpu{}/cache", unit.core);
                missing.note("last-level caches", source, "the kernel does not describe the caches");
                // Without a description here the others have none either.
                break;
            }
        }
    }
    groups
}

/// The cache of the highest level that holds data; `None` when none is described.
fn last_level(root: &HostRoot, core: u32) -> Option<Result<LlcGroup, crate::attribute::AttributeError>> {
    let folder = format!("{CPU}/cpu{core}/cache");
    let mut best: Option<(u32, String)> = None;
    for index in numbered(root, &folder, "index") {
        let index = format!("{folder}/index{index}");
        if root.line(&format!("{index}/type")).is_ok_and(|kind| kind == "Instruction") {
            continue;
        }
        match root.number::<u32>(&format!("{index}/level")) {
            Ok(level) if best.as_ref().is_none_or(|(highest, _)| level > *highest) => {
                best = Some((level, index))
            }
            Ok(_) => {}
            Err(error) => return Some(Err(error)),
        }
    }
    let (level, index) = best?;
    let cores = match root.parse(&format!("{index}/shared_cpu_list"), cpuset::list) {
        Ok(cores) if cores.contains(&core) => cores,
        Ok(_) => vec![core],
        Err(error) => return Some(Err(error)),
    };
    // Some hypervisors report a cache without its size.
    let size_bytes = match root.parse(&format!("{index}/size"), text::cache_bytes) {
        Ok(size) => size,
        Err(error) if error.is_absent() => 0,
        Err(error) => return Some(Err(error)),
    };
    Some(Ok(LlcGroup { level, size_bytes, cores }))
}

/// Second-level cache per core, the smallest one. Where a package has two kinds of cores one kind comes
/// first: its first and its last unit represent all.
fn l2_cache_bytes(root: &HostRoot, units: &[ProcessingUnit], packages: &[Package]) -> Option<u64> {
    let ends = packages.iter().flat_map(|package| [package.cores.first(), package.cores.last()]);
    let cores: BTreeSet<u32> = ends.flatten().copied().collect();
    let sampled = units.iter().filter(|unit| unit.online && cores.contains(&unit.core));
    sampled.filter_map(|unit| second_level(root, unit)).min()
}

/// Fraction of a unit's second-level cache per core that shares it.
fn second_level(root: &HostRoot, unit: &ProcessingUnit) -> Option<u64> {
    let folder = format!("{CPU}/cpu{}/cache", unit.core);
    let index = numbered(root, &folder, "index").into_iter().find_map(|index| {
        let index = format!("{folder}/index{index}");
        let level = root.number::<u32>(&format!("{index}/level")).ok()?;
        let holds_data = root.line(&format!("{index}/type")).is_ok_and(|kind| kind != "Instruction");
        (level == 2 && holds_data).then_some(index)
    })?;
    let size = root.parse(&format!("{index}/size"), text::cache_bytes).ok()?;
    let sharing =
        root.parse(&format!("{index}/shared_cpu_list"), cpuset::list).map_or(1, |cores| cores.len());
    let cores = (sharing / unit.siblings.len().max(1)).max(1);
    Some(size / cores as u64).filter(|size| *size > 0)
}

fn nodes(root: &HostRoot, online: &[u32], missing: &mut Missing) -> Vec<NumaNode> {
    let numbers = numbered(root, NODE, "node");
    if numbers.is_empty() {
        missing.note("numa nodes", format!("/{NODE}"), "the kernel reports none: assumed to be one node");
        let memory =
            |name| root.parse("proc/meminfo", |meminfo| text::memory_bytes(meminfo, name)).unwrap_or(0);
        return vec![NumaNode {
            node: 0,
            cores: online.to_vec(),
            memory_bytes: memory("MemTotal"),
            free_bytes: memory("MemFree"),
            distances: vec![10],
        }];
    }
    let count = numbers.len();
    numbers.into_iter().map(|node| numa_node(root, node, count, missing)).collect()
}

fn numa_node(root: &HostRoot, node: u32, node_count: usize, missing: &mut Missing) -> NumaNode {
    let folder = format!("{NODE}/node{node}");
    let part = |what| format!("numa node {node} {what}");
    let cores = missing.keep(part("cores"), root.parse(&format!("{folder}/cpulist"), cpuset::list));
    let path = format!("{folder}/distance");
    let mut distances =
        missing.keep(part("distances"), root.parse(&path, text::distances)).unwrap_or_default();
    if !distances.is_empty() && distances.len() != node_count {
        let reason = format!("{} distances for {node_count} nodes", distances.len());
        missing.note(part("distances"), format!("/{path}"), reason);
        distances.clear();
    }
    let meminfo = root.line(&format!("{folder}/meminfo"));
    let meminfo = missing.keep(part("memory"), meminfo).unwrap_or_default();
    let mut memory = |name| {
        if meminfo.is_empty() {
            return 0;
        }
        text::memory_bytes(&meminfo, name).unwrap_or_else(|error| {
            missing.note(part("memory"), format!("/{folder}/meminfo"), error.to_string());
            0
        })
    };
    let (memory_bytes, free_bytes) = (memory("MemTotal"), memory("MemFree"));
    NumaNode { node, cores: cores.unwrap_or_default(), memory_bytes, free_bytes, distances }
}

/// Distance from each node to `target`, in the order of the nodes; empty when
/// the kernel gave no distances.
pub(crate) fn distances_to(nodes: &[NumaNode], target: u32) -> Vec<u32> {
    let Some(place) = nodes.iter().position(|node| node.node == target) else { return Vec::new() };
    nodes.iter().map(|node| node.distances.get(place).copied()).collect::<Option<_>>().unwrap_or_default()
}

/// Hop counts of these distances: the rank of each among all distances of the host, so that 0 is local and a
/// hop means the same for every device.
pub(crate) fn hops(nodes: &[NumaNode], distances: &[u32]) -> Vec<u32> {
    let steps: BTreeSet<u32> = nodes.iter().flat_map(|node| &node.distances).copied().collect();
    distances
        .iter()
        .map(|distance| u32::try_from(steps.range(..distance).count()).unwrap_or(u32::MAX))
        .collect()
}
