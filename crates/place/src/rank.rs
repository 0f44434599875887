//! Ranking of cores for an interface, best first.
//!
//! The order is that of measurements on real hosts: a reader on another core
//! of the interrupt core's package gains about 10 % over one elsewhere, on the
//! interrupt core itself half of that (40GE report, section 5), on another die
//! it loses a fifth (TNC 2011 paper, figure 7; Hanford et al., NDM 2013; Foong et al.,
//! ISPASS 2005). A writer is hardly affected; it belongs near the I/O bridge.

use std::cmp::Reverse;

use crate::document::{Closeness, ExcludedCore, RANKING_SCHEMA, RankedCore, Ranking, Role, RoleRanking};
use clearstream_schema::{
    host::{HostReport, Nic, ProcessingUnit},
    human::count,
};

use crate::{PlaceError, host_name, interface};

/// NUMA distance within a node when the host reports none.
const LOCAL_DISTANCE: u32 = 10;

/// Ranks the cores of a host for one of its interfaces. `interrupt_core` is
/// the core that readers and writers are ranked against: when absent the one
/// that the first queue's interrupt goes to now, or else the best one.
pub fn rank(host: &HostReport, name: &str, interrupt_core: Option<u32>) -> Result<Ranking, PlaceError> {
    let nic = interface(host, name)?;
    let view = View::new(host, nic)?;
    let interrupts = view.interrupt_cores();
    let (core, from) = match (interrupt_core, view.effective_core()) {
        (Some(core), _) => (view.usable(core)?, "as requested".to_owned()),
        (None, Some((core, interrupt))) => (core, format!("interrupt {interrupt} goes to it now")),
        (None, None) => {
            (interrupts[0].core, "the best for interrupts: their current core is not known".to_owned())
        }
    };
    Ok(Ranking {
        schema: RANKING_SCHEMA.to_owned(),
        version: 1,
        host: host.name.clone(),
        interface: name.to_owned(),
        node: nic.node,
        interrupt_core: core,
        interrupt_core_from: from,
        roles: vec![
            RoleRanking { role: Role::Interrupt, cores: interrupts },
            RoleRanking { role: Role::Reader, cores: view.readers(core) },
            RoleRanking { role: Role::Writer, cores: view.writers(core) },
        ],
        excluded: view.excluded,
        notes: view.notes,
    })
}

/// A host relative to one interface.
pub(crate) struct View<'a> {
    host: &'a HostReport,
    nic: &'a Nic,
    /// Cores that may be used.
    units: Vec<&'a ProcessingUnit>,
    excluded: Vec<ExcludedCore>,
    pub(crate) notes: Vec<String>,
}

impl<'a> View<'a> {
    pub(crate) fn new(host: &'a HostReport, nic: &'a Nic) -> Result<Self, PlaceError> {
        let mut units = Vec::new();
        let mut excluded = Vec::new();
        for unit in &host.processing_units {
            match unusable(host, unit) {
                Some(reason) => excluded.push(ExcludedCore { core: unit.core, reason: reason.to_owned() }),
                None => units.push(unit),
            }
        }
        if units.is_empty() {
            return Err(PlaceError::NoCores { host: host_name(host) });
        }
        let mut notes = Vec::new();
        if nic.node.is_none() && host.nodes.len() > 1 {
            notes.push(format!(
                "the node of {} is not known (virtual, or the firmware reports none): all nodes count as equally \
                 near; name the core of its interrupt to rank readers",
                nic.name
            ));
        }
        if host.llc_groups.is_empty() {
            notes.push(
                "the host does not describe its caches: cores of a node count as sharing none".to_owned(),
            );
        }
        if let Some(quota) = host.limits.cpu_quota_millicores {
            notes.push(format!(
                "a CPU quota of {:.2} cores bounds all threads together, wherever they are",
                quota as f64 / 1000.0
            ));
        }
        Ok(Self { host, nic, units, excluded, notes })
    }

    /// The core when it can be used.
    fn usable(&self, core: u32) -> Result<u32, PlaceError> {
        if self.unit(core).is_some() {
            return Ok(core);
        }
        let reason = self.excluded.iter().find(|excluded| excluded.core == core);
        let reason =
            reason.map_or_else(|| "there is none of this number".to_owned(), |found| found.reason.clone());
        Err(PlaceError::Core { host: host_name(self.host), core, reason })
    }

    fn unit(&self, core: u32) -> Option<&'a ProcessingUnit> {
        self.units.iter().copied().find(|unit| unit.core == core)
    }

    /// Current core of the first queue's interrupt, when it is one usable core.
    fn effective_core(&self) -> Option<(u32, u32)> {
        self.nic.interrupts.iter().find_map(|number| {
            let interrupt = self.host.interrupts.iter().find(|interrupt| interrupt.interrupt == *number)?;
            match interrupt.effective_cores.as_slice() {
                [core] if interrupt.queue.is_some() => self.unit(*core).map(|_| (*core, *number)),
                _ => None,
            }
        })
    }

    /// Cores for interrupts, best first: those of the interface's node, each
    /// physical core before any second thread, then other nodes.
    pub(crate) fn interrupt_cores(&self) -> Vec<RankedCore> {
        let mut ranked: Vec<(_, RankedCore)> = self
            .units
            .iter()
            .map(|unit| {
                let distance = self.distance_to_interface(unit);
                let local = distance.is_none_or(|distance| distance <= LOCAL_DISTANCE);
                let closeness = if local { Closeness::SameNode } else { Closeness::OtherNode };
                let second = self.is_second_thread(unit);
                let reason = match (self.nic.node, local, distance) {
                    (None, ..) => "the interface's node is not known".to_owned(),
                    (Some(node), true, _) => format!("on node {node}, where {} is attached", self.nic.name),
                    (Some(node), false, distance) => remote(node, distance, self.hops(unit)),
                };
                let key = (distance.unwrap_or(LOCAL_DISTANCE), self.hops(unit), second, unit.core);
                (key, self.ranked(unit, closeness, distance, reason + second_thread(second)))
            })
            .collect();
        ranked.sort_by_key(|entry| entry.0);
        ranked.into_iter().map(|(_, core)| core).collect()
    }

    /// Cores for the reader of packets that `interrupt_core` processes.
    pub(crate) fn readers(&self, interrupt_core: u32) -> Vec<RankedCore> {
        self.around(interrupt_core, |place| match place.closeness {
            Closeness::SharedCache => format!(
                "another physical core behind the cache of interrupt core {interrupt_core}: packets are still in it"
            ),
            Closeness::SameNode => {
                format!("another physical core on the node of interrupt core {interrupt_core}")
            }
            Closeness::SameCore => {
                "the interrupt core itself: warm cache, but softirq and reader share its cycles".to_owned()
            }
            Closeness::Sibling => {
                format!("SMT sibling of interrupt core {interrupt_core}: shares its execution units")
            }
            Closeness::OtherNode => format!(
                "another node: every packet crosses to it{}",
                place.distance.map_or(String::new(), |distance| format!(" (distance {distance})"))
            ),
        })
    }

    /// Cores for the writer: near the interface, off the core that processes
    /// the acknowledgements.
    pub(crate) fn writers(&self, interrupt_core: u32) -> Vec<RankedCore> {
        let mut ranked = self.around(interrupt_core, |place| match place.closeness {
            Closeness::SharedCache | Closeness::SameNode => {
                format!("near the acknowledgements' core {interrupt_core}, and not on it")
            }
            Closeness::SameCore => "the core that processes the acknowledgements".to_owned(),
            Closeness::Sibling => "SMT sibling of the core that processes the acknowledgements".to_owned(),
            Closeness::OtherNode => "another node than the acknowledgements' core".to_owned(),
        });
        // What is sent is fetched by the interface from the writer's node.
        ranked.sort_by_key(|core| {
            (self.unit(core.core).and_then(|unit| self.distance_to_interface(unit)), core.hops)
        });
        for core in &mut ranked {
            let attached = core.hops == Some(0) || self.host.nodes.len() < 2;
            if let (false, Some(hops)) = (attached, core.hops) {
                core.reason = format!("{}; {hops} hops from {}", core.reason, self.nic.name);
            }
        }
        ranked
    }

    /// Cores around one, best first: closeness, then distance to it, then its
    /// package, then the distance to the interface, first threads before second ones.
    fn around(&self, center: u32, reason: impl Fn(&RankedCore) -> String) -> Vec<RankedCore> {
        let Some(center) = self.host.processing_units.iter().find(|unit| unit.core == center) else {
            return Vec::new();
        };
        let mut ranked: Vec<(_, RankedCore)> = self
            .units
            .iter()
            .map(|unit| {
                let closeness = self.closeness(unit, center);
                let distance = self.distance(unit.node, center.node);
                let second = self.is_second_thread(unit)
                    && !matches!(closeness, Closeness::SameCore | Closeness::Sibling);
                let other_package = unit.package != center.package;
                let mut place = self.ranked(unit, closeness, distance, String::new());
                place.reason = reason(&place) + second_thread(second);
                let key = (closeness, distance, other_package, place.hops, second, unit.core);
                (key, place)
            })
            .collect();
        ranked.sort_by_key(|entry| entry.0);
        ranked.into_iter().map(|(_, core)| core).collect()
    }

    fn closeness(&self, unit: &ProcessingUnit, center: &ProcessingUnit) -> Closeness {
        let shares = |group: &&clearstream_schema::host::LlcGroup| {
            group.cores.contains(&unit.core) && group.cores.contains(&center.core)
        };
        if unit.core == center.core {
            Closeness::SameCore
        } else if center.siblings.contains(&unit.core) {
            Closeness::Sibling
        } else if unit.node != center.node {
            Closeness::OtherNode
        } else if self.host.llc_groups.iter().any(|group| shares(&group)) {
            Closeness::SharedCache
        } else {
            Closeness::SameNode
        }
    }

    fn ranked(
        &self,
        unit: &ProcessingUnit,
        closeness: Closeness,
        distance: Option<u32>,
        reason: String,
    ) -> RankedCore {
        RankedCore {
            core: unit.core,
            closeness,
            node: unit.node,
            package: unit.package,
            distance,
            hops: self.hops(unit),
            reason,
        }
    }

    /// A thread of a physical core whose first usable thread is another.
    pub(crate) fn is_second_thread(&self, unit: &ProcessingUnit) -> bool {
        self.units.iter().any(|other| other.core < unit.core && unit.siblings.contains(&other.core))
    }

    /// First usable threads of the physical cores on the interface's node;
    /// of all nodes when it is not known.
    pub(crate) fn local_physical_cores(&self) -> usize {
        let near = |unit: &&&ProcessingUnit| {
            self.distance_to_interface(unit).is_none_or(|distance| distance <= LOCAL_DISTANCE)
        };
        let local = self.units.iter().filter(near).filter(|unit| !self.is_second_thread(unit)).count();
        // A node with memory and no usable cores: the work goes elsewhere.
        if local > 0 { local } else { self.units.iter().filter(|unit| !self.is_second_thread(unit)).count() }
    }

    pub(crate) fn shares_physical_core(&self, a: u32, b: u32) -> bool {
        a == b || self.unit(a).is_some_and(|unit| unit.siblings.contains(&b))
    }

    fn distance_to_interface(&self, unit: &ProcessingUnit) -> Option<u32> {
        let at = self.node_index(unit.node?)?;
        self.nic.distances.get(at).copied()
    }

    fn hops(&self, unit: &ProcessingUnit) -> Option<u32> {
        let at = self.node_index(unit.node?)?;
        self.nic.hops.get(at).copied()
    }

    fn distance(&self, from: Option<u32>, to: Option<u32>) -> Option<u32> {
        let (from, to) = (self.node_index(from?)?, self.node_index(to?)?);
        self.host.nodes.get(from)?.distances.get(to).copied()
    }

    fn node_index(&self, node: u32) -> Option<usize> {
        self.host.nodes.iter().position(|found| found.node == node)
    }
}

fn unusable(host: &HostReport, unit: &ProcessingUnit) -> Option<&'static str> {
    if !unit.online {
        Some("offline")
    } else if host.limits.isolated_cores.contains(&unit.core) {
        Some("isolated at boot (isolcpus): the scheduler and irqbalance leave it alone")
    } else if !unit.allowed {
        Some("not allowed for this process (cpuset or affinity)")
    } else {
        None
    }
}

fn remote(node: u32, distance: Option<u32>, hops: Option<u32>) -> String {
    let distance = distance.map_or(String::new(), |distance| format!(", distance {distance}"));
    let hops = hops.map_or(String::new(), |hops| format!(", {}", count(hops, "hop")));
    format!("away from the interface's node {node}{distance}{hops}")
}

fn second_thread(second: bool) -> &'static str {
    if second { "; second thread of a physical core that is ranked before it" } else { "" }
}

/// Nodes by free memory among the nearest to the interface that have any.
pub(crate) fn memory_node(host: &HostReport, nic: &Nic) -> Option<u32> {
    let allowed =
        |node: u32| host.limits.allowed_nodes.is_empty() || host.limits.allowed_nodes.contains(&node);
    let with_memory =
        host.nodes.iter().enumerate().filter(|(_, node)| node.memory_bytes > 0 && allowed(node.node));
    nic.node?;
    with_memory
        .min_by_key(|(at, node)| {
            (nic.distances.get(*at).copied().unwrap_or(u32::MAX), Reverse(node.free_bytes))
        })
        .map(|(_, node)| node.node)
}
