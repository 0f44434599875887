//! Assignment of cores: interrupts first, then one thread per flow next to them.

use crate::document::{FlowPlacement, QueuePlacement, RankedCore, SpreadMethod};
use clearstream_schema::host::{HostReport, Nic, QueueDirection};

use crate::rank::View;

/// Queues, interrupts and flows with their cores.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) method: SpreadMethod,
    pub(super) queues: Vec<QueuePlacement>,
    pub(super) flows: Vec<FlowPlacement>,
    /// Interrupts and the core that each is to go to.
    pub(super) pinned: Vec<(u32, u32)>,
    /// Several flows share a softirq core, so that a fixed split is blind.
    pub(super) crowded: bool,
}

impl Assignment {
    pub(super) fn new(host: &HostReport, nic: &Nic, view: &View<'_>, flows: u32) -> Self {
        // Half of the node's physical cores process packets, the other half
        // reads them: "the smallest number of queues with no overflow"
        // (Documentation/networking/scaling.rst), and no queue on a core
        // where an application works.
        let room = u32::try_from(view.local_physical_cores() / 2).unwrap_or(u32::MAX).max(1);
        let wanted = flows.min(room);
        let queue_count = wanted.min(most_queues(nic)).max(1);
        let served = |queue: u32| receive_interrupt(host, nic, queue).is_some();
        let method =
            if served(0) && queue_count == wanted { SpreadMethod::Queues } else { SpreadMethod::Software };
        let softirq_cores: Vec<u32> = distinct(view, &view.interrupt_cores(), wanted as usize);
        let queues: Vec<QueuePlacement> = (0..queue_count)
            .map(|queue| QueuePlacement {
                queue,
                interrupt: receive_interrupt(host, nic, queue),
                cores: shares(&softirq_cores, queue, queue_count),
            })
            .collect();
        let pinned = pinned(host, nic, &queues);
        let mut taken = Taken::new(view, &softirq_cores);
        let mut places: Vec<FlowPlacement> = Vec::new();
        for flow in 0..flows {
            let core = softirq_cores[flow as usize % softirq_cores.len()];
            let readers = view.readers(core);
            let reader_core = taken.take(&readers);
            places.push(FlowPlacement { flow, queue: flow % queue_count, reader_core, writer_core: 0 });
        }
        let mut taken = Taken::new(view, &softirq_cores);
        for place in &mut places {
            let core = softirq_cores[place.flow as usize % softirq_cores.len()];
            place.writer_core = taken.take(&view.writers(core));
        }
        Self { method, queues, flows: places, pinned, crowded: flows > wanted }
    }
}

/// Queues that the device can have.
fn most_queues(nic: &Nic) -> u32 {
    let channels = nic.combined_channels.or(nic.receive_channels).map(|channels| channels.max_count);
    channels.filter(|count| *count > 0).unwrap_or(nic.receive_queue_count).max(1)
}

/// The softirq cores of one queue: its part of them, in turn.
fn shares(cores: &[u32], queue: u32, queue_count: u32) -> Vec<u32> {
    cores.iter().copied().skip(queue as usize).step_by(queue_count as usize).collect()
}

/// The best cores, one per physical core.
fn distinct(view: &View<'_>, ranked: &[RankedCore], count: usize) -> Vec<u32> {
    let mut chosen: Vec<u32> = Vec::new();
    for core in ranked.iter().map(|ranked| ranked.core) {
        if chosen.len() < count && !chosen.iter().any(|other| view.shares_physical_core(core, *other)) {
            chosen.push(core);
        }
    }
    chosen
}

/// Physical cores that are taken, while flows get theirs.
struct Taken<'a> {
    view: &'a View<'a>,
    softirq_cores: &'a [u32],
    busy: Vec<u32>,
}

impl<'a> Taken<'a> {
    fn new(view: &'a View<'a>, softirq_cores: &'a [u32]) -> Self {
        Self { view, softirq_cores, busy: Vec::new() }
    }

    /// The best core whose physical core is free. When all of those as
    /// close are taken, two threads share one: that costs less than moving
    /// to another node, and less than sharing one with an interrupt.
    fn take(&mut self, ranked: &[RankedCore]) -> u32 {
        let shares = |core: u32, list: &[u32]| {
            list.iter().filter(|other| self.view.shares_physical_core(core, **other)).count()
        };
        let near = ranked.iter().take_while(|place| place.closeness == ranked[0].closeness);
        let chosen = near
            .min_by_key(|place| (shares(place.core, self.softirq_cores), shares(place.core, &self.busy)))
            .map_or(0, |place| place.core);
        self.busy.push(chosen);
        chosen
    }
}

/// The interrupt of a receive queue.
pub(super) fn receive_interrupt(host: &HostReport, nic: &Nic, queue: u32) -> Option<u32> {
    vector(host, nic, queue, |direction| direction != QueueDirection::Transmit)
}

fn vector(host: &HostReport, nic: &Nic, queue: u32, fits: impl Fn(QueueDirection) -> bool) -> Option<u32> {
    let found = host.interrupts.iter().find(|interrupt| {
        interrupt.queue.as_ref().is_some_and(|served| {
            served.interface == nic.name && served.queue == queue && fits(served.direction)
        })
    });
    found.map(|interrupt| interrupt.interrupt)
}

/// Both vectors of a queue go to its first core.
fn pinned(host: &HostReport, nic: &Nic, queues: &[QueuePlacement]) -> Vec<(u32, u32)> {
    let mut pinned = Vec::new();
    for queue in queues {
        let Some(&core) = queue.cores.first() else { continue };
        let transmit = vector(host, nic, queue.queue, |direction| direction == QueueDirection::Transmit);
        pinned.extend(queue.interrupt.into_iter().chain(transmit).map(|number| (number, core)));
    }
    pinned
}
