//! Counts of one side, warm-up excluded.

use clearstream_schema::{
    counters::CoreCounters,
    flow::{CpuUse, FlowInterval, SideInterval, ZerocopyCount},
    tcp_info::TcpInfo,
};

/// Counts of one side.
#[derive(Debug, Default)]
pub(super) struct SideTotal {
    pub(super) measured_ns: u64,
    cpu_ns: u64,
    host: HostTime,
    pub(super) cycles: Option<u64>,
    /// Received by each flow.
    pub(super) received_bytes: Vec<u64>,
    /// Retransmissions of each flow's sending socket.
    resent: Vec<Resent>,
    /// RTT samples of its sending sockets, one per flow and interval.
    pub(super) rtts_ns: Vec<u64>,
    pub(super) min_rtt_ns: Option<u64>,
    pub(super) zerocopy: Option<ZerocopyCount>,
    /// Datagrams received here.
    pub(super) datagrams: Option<DatagramCount>,
    jitters: Jitters,
}

/// CPU time of the host's cores, over the intervals in which it was readable.
#[derive(Debug, Default)]
struct HostTime {
    busy_ns: u64,
    softirq_ns: u64,
    wall_ns: u64,
}

/// Jitter samples.
#[derive(Debug, Default)]
struct Jitters {
    sum_ns: u64,
    count: u64,
}

/// Datagram counts by sequence number.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct DatagramCount {
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) reordered: u64,
}

impl DatagramCount {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            lost: self.lost + other.lost,
            reordered: self.reordered + other.reordered,
        }
    }
}

/// Lost / (lost + received).
pub(super) fn loss_ratio(count: DatagramCount) -> f64 {
    match count.received + count.lost {
        0 => 0.0,
        all => count.lost as f64 / all as f64,
    }
}

/// Counters of a sending socket at the start of the measured time and now.
#[derive(Debug, Default, Clone, Copy)]
struct Resent {
    before: Counters,
    now: Option<Counters>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counters {
    pub(super) segments: u64,
    pub(super) resent_bytes: u64,
    pub(super) sent_bytes: u64,
}

impl Counters {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            segments: self.segments + other.segments,
            resent_bytes: self.resent_bytes + other.resent_bytes,
            sent_bytes: self.sent_bytes + other.sent_bytes,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            segments: self.segments.saturating_sub(before.segments),
            resent_bytes: self.resent_bytes.saturating_sub(before.resent_bytes),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
        }
    }
}

impl From<&TcpInfo> for Counters {
    fn from(info: &TcpInfo) -> Self {
        Self {
            segments: info.total_retransmit_count.into(),
            resent_bytes: info.retransmitted_bytes.unwrap_or(0),
            sent_bytes: info.sent_bytes.unwrap_or(0),
        }
    }
}

/// The element of a flow in a vector that grows as needed.
pub(super) fn place<T: Default>(of: &mut Vec<T>, flow: u32) -> &mut T {
    let index = flow as usize;
    if of.len() <= index {
        of.resize_with(index + 1, T::default);
    }
    &mut of[index]
}

pub(super) fn rate_bps(bytes: u64, nanos: u64) -> f64 {
    if nanos == 0 { 0.0 } else { bytes as f64 * 8e9 / nanos as f64 }
}

impl SideTotal {
    pub(super) fn add(&mut self, side: &SideInterval) {
        let wall_ns = side.end_ns.saturating_sub(side.start_ns);
        self.cpu_ns += side.thread_cpu_ns;
        if let Some(cycles) = side.cycle_count {
            *self.cycles.get_or_insert(0) += cycles;
        }
        // A side without flows did not take part.
        if !side.flows.is_empty() {
            self.measured_ns += wall_ns;
        }
        if !side.cores.is_empty() {
            let sum = |of: fn(&CoreCounters) -> u64| side.cores.iter().map(of).sum::<u64>();
            self.host.busy_ns += sum(|core| core.user_ns + core.system_ns + core.softirq_ns + core.irq_ns);
            self.host.softirq_ns += sum(|core| core.softirq_ns);
            self.host.wall_ns += wall_ns;
        }
        for flow in &side.flows {
            *place(&mut self.received_bytes, flow.flow) += flow.received_bytes;
        }
    }

    pub(super) fn resent(&mut self, side: &SideInterval, warm_up: bool) {
        for (flow, info) in side.flows.iter().filter_map(|flow| Some((flow.flow, flow.tcp.as_ref()?))) {
            let resent = place(&mut self.resent, flow);
            if warm_up {
                resent.before = info.into();
            } else {
                resent.now = Some(info.into());
            }
        }
    }

    /// Adds a flow sent here.
    pub(super) fn sender(&mut self, flow: &FlowInterval) {
        if let Some(info) = &flow.tcp {
            self.rtts_ns.extend((info.rtt_ns > 0).then_some(info.rtt_ns));
            self.min_rtt_ns = [self.min_rtt_ns, info.min_rtt_ns].into_iter().flatten().min();
        }
        if let Some(count) = flow.zerocopy {
            let total = self.zerocopy.get_or_insert_default();
            total.completed_count += count.completed_count;
            total.copied_count += count.copied_count;
        }
    }

    /// Adds a flow received here.
    pub(super) fn receiver(&mut self, flow: &FlowInterval) {
        if let (Some(received), Some(lost)) = (flow.datagram_count, flow.lost_count) {
            let count = DatagramCount { received, lost, reordered: flow.reordered_count.unwrap_or(0) };
            self.datagrams = Some(self.datagrams.unwrap_or_default().plus(count));
        }
        if let Some(jitter_ns) = flow.jitter_ns {
            self.jitters.sum_ns = self.jitters.sum_ns.saturating_add(jitter_ns);
            self.jitters.count += 1;
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.received_bytes.iter().sum()
    }

    pub(super) fn jitter_ns(&self) -> Option<u64> {
        self.jitters.sum_ns.checked_div(self.jitters.count)
    }

    /// (ns / 1e9) / (bytes / 1e9), of the flow threads.
    pub(super) fn cpu_seconds_per_gb(&self, received_bytes: u64) -> f64 {
        if received_bytes == 0 { 0.0 } else { self.cpu_ns as f64 / received_bytes as f64 }
    }

    /// CPU use of the threads and of the host; `None` for a side that did not take part.
    pub(super) fn cpu_use(&self) -> Option<CpuUse> {
        let of_host = |time: u64| (self.host.wall_ns > 0).then(|| time as f64 / self.host.wall_ns as f64);
        (self.measured_ns > 0).then(|| CpuUse {
            threads_ratio: self.cpu_ns as f64 / self.measured_ns as f64,
            host_ratio: of_host(self.host.busy_ns),
            host_softirq_ratio: of_host(self.host.softirq_ns),
        })
    }

    /// Retransmissions of all flows since the start of the measured time.
    pub(super) fn resent_total(&self) -> Option<Counters> {
        let differences = self.resent.iter().filter_map(|flow| Some(flow.now?.since(flow.before)));
        differences.reduce(Counters::plus)
    }
}
