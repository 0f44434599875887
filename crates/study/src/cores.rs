//! Selection of a study's cores, from the host's description.

use std::collections::BTreeMap;

use clearstream_schema::{CoreList, host::HostReport};

/// Cores that threads may be pinned to, ascending.
pub(crate) fn usable(host: &HostReport) -> Vec<u32> {
    host.processing_units.iter().filter(|unit| unit.online && unit.allowed).map(|unit| unit.core).collect()
}

/// Core of the host's network interrupts: the core with most
/// of the fastest interface's interrupts, or the core that the kernel routes
/// them to. `None` for virtual interfaces, which have none.
pub fn interrupt_core(host: &HostReport) -> Option<u32> {
    let nic = host
        .nics
        .iter()
        .filter(|nic| !nic.interrupts.is_empty() && nic.operational_state.as_deref() != Some("down"))
        .max_by_key(|nic| nic.speed_bps)?;
    let mine = || host.interrupts.iter().filter(|interrupt| nic.interrupts.contains(&interrupt.interrupt));
    let mut delivered: BTreeMap<u32, u64> = BTreeMap::new();
    for interrupt in mine() {
        for (core, count) in &interrupt.counts {
            *delivered.entry(*core).or_default() += count;
        }
    }
    let busiest = delivered.iter().max_by_key(|(core, count)| (**count, std::cmp::Reverse(**core)));
    match busiest {
        Some((core, count)) if *count > 0 => Some(*core),
        _ => mine().flat_map(|interrupt| &interrupt.effective_cores).next().copied(),
    }
}

/// One core for each class of cores of equal placement (NUMA node and
/// last-level cache), plus the cores that take the interrupts and a neighbour
/// of each: its SMT sibling, else the nearest core of its class. Where nothing
/// is known of interrupts the first core is taken for theirs, so that two
/// cores of one class are always included.
pub(crate) fn representative(host: &HostReport, interrupt_cores: &[u32]) -> Vec<u32> {
    let usable = usable(host);
    let mut classes: BTreeMap<Class, Vec<u32>> = BTreeMap::new();
    for core in &usable {
        classes.entry(Class::of(host, *core)).or_default().push(*core);
    }
    let mut chosen: Vec<u32> = classes.values().filter_map(|cores| cores.first().copied()).collect();
    let mut special: Vec<u32> =
        interrupt_cores.iter().copied().filter(|core| usable.contains(core)).collect();
    if special.is_empty() {
        special.extend(usable.first());
    }
    for core in special {
        chosen.push(core);
        let class = classes.get(&Class::of(host, core)).map_or(&[][..], Vec::as_slice);
        chosen.extend(neighbour(host, core, class));
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Cores of equal class have equal access to memory and cache.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    node: Option<u32>,
    cache: Option<usize>,
    package: Option<u32>,
}

impl Class {
    fn of(host: &HostReport, core: u32) -> Self {
        let unit = host.processing_units.iter().find(|unit| unit.core == core);
        Self {
            node: unit.and_then(|unit| unit.node),
            cache: host.llc_groups.iter().position(|group| group.cores.contains(&core)),
            package: unit.and_then(|unit| unit.package),
        }
    }
}

fn neighbour(host: &HostReport, core: u32, class: &[u32]) -> Option<u32> {
    let unit = host.processing_units.iter().find(|unit| unit.core == core)?;
    let sibling = unit.siblings.iter().copied().find(|other| *other != core && class.contains(other));
    let nearest =
        || class.iter().copied().filter(|other| *other != core).min_by_key(|other| other.abs_diff(core));
    sibling.or_else(nearest)
}

/// Whether threads can be pinned to all of these cores; the message lists the available ones.
pub(crate) fn check(host: &HostReport, cores: &CoreList) -> Result<(), String> {
    // A host that could not be read passes: its agent checks.
    if host.processing_units.is_empty() {
        return Ok(());
    }
    for core in &cores.0 {
        let why = match host.processing_units.iter().find(|unit| unit.core == *core) {
            None => "does not exist",
            Some(unit) if !unit.online => "is offline",
            Some(unit) if !unit.allowed => "is not allowed to this process",
            Some(_) => continue,
        };
        return Err(format!("core {core} {why} on {}: it has {}", host.name, CoreList(usable(host))));
    }
    Ok(())
}
