//! Figures of a whole test out of its intervals, one after the other: memory
//! does not grow with the length of the test but for one number per sample.

use clearstream_schema::flow::{
    FlowConfig, FlowInterval, FlowSettings, FlowSummary, Interval, Notice, SideInterval, ZerocopyCount,
};
use clearstream_schema::tcp_info::TcpInfo;

use super::{
    Side,
    cores::{InterruptVotes, SeenCores},
    notices::Evidence,
    receivers, senders,
    standstill::Standstills,
};

/// Counts of one side, warm-up excluded.
#[derive(Debug, Default)]
struct SideTotal {
    measured_ns: u64,
    cpu_ns: u64,
    cycles: Option<u64>,
    /// Received by each flow.
    received_bytes: Vec<u64>,
    /// Retransmissions of each flow's sending socket.
    resent: Vec<Resent>,
}

/// Counters of a sending socket at the start of the measured time and now.
#[derive(Debug, Default, Clone, Copy)]
struct Resent {
    before: Counters,
    now: Option<Counters>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    segments: u64,
    resent_bytes: u64,
    sent_bytes: u64,
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

/// Gathers intervals.
#[derive(Debug)]
pub(super) struct Totals {
    config: FlowConfig,
    client: SideTotal,
    server: SideTotal,
    rtts_ns: Vec<u64>,
    min_rtt_ns: Option<u64>,
    zerocopy: Option<ZerocopyCount>,
    datagrams: Option<(u64, u64)>,
    interrupts: InterruptVotes,
    seen: Vec<SeenCores>,
    standstills: Standstills,
}

/// What is known beside the intervals.
pub(super) struct Circumstances {
    pub(super) client: FlowSettings,
    pub(super) server: FlowSettings,
    pub(super) notices: Vec<Notice>,
    pub(super) dropped_count: u64,
    pub(super) complete: bool,
}

/// The place of a flow in a vector that grows as needed.
fn place<T: Default>(of: &mut Vec<T>, flow: u32) -> &mut T {
    let index = flow as usize;
    if of.len() <= index {
        of.resize_with(index + 1, T::default);
    }
    &mut of[index]
}

impl SideTotal {
    fn add(&mut self, side: &SideInterval) {
        self.cpu_ns += side.thread_cpu_ns;
        if let Some(cycles) = side.cycle_count {
            *self.cycles.get_or_insert(0) += cycles;
        }
        // A side without flows was not there.
        if !side.flows.is_empty() {
            self.measured_ns += side.end_ns.saturating_sub(side.start_ns);
        }
        for flow in &side.flows {
            *place(&mut self.received_bytes, flow.flow) += flow.received_bytes;
        }
    }

    fn resent(&mut self, side: &SideInterval, warm_up: bool) {
        for (flow, info) in side.flows.iter().filter_map(|flow| Some((flow.flow, flow.tcp.as_ref()?))) {
            let resent = place(&mut self.resent, flow);
            if warm_up {
                resent.before = info.into();
            } else {
                resent.now = Some(info.into());
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.received_bytes.iter().sum()
    }
}

fn rate_bps(bytes: u64, nanos: u64) -> f64 {
    if nanos == 0 { 0.0 } else { bytes as f64 * 8e9 / nanos as f64 }
}

impl Totals {
    pub(super) fn new(config: &FlowConfig) -> Self {
        Self {
            config: config.clone(),
            client: SideTotal::default(),
            server: SideTotal::default(),
            rtts_ns: Vec::new(),
            min_rtt_ns: None,
            zerocopy: None,
            datagrams: None,
            interrupts: InterruptVotes::default(),
            seen: Vec::new(),
            standstills: Standstills::new(config),
        }
    }

    /// Takes the next interval.
    pub(super) fn add(&mut self, interval: &Interval) {
        let sides = [(Side::Client, &interval.client), (Side::Server, &interval.server)];
        self.standstills.add(sides);
        let (senders, receivers) = (senders(self.config.direction), receivers(self.config.direction));
        for (side, facts) in sides {
            let total = match side {
                Side::Client => &mut self.client,
                Side::Server => &mut self.server,
            };
            if senders.contains(&side) {
                total.resent(facts, interval.warm_up);
            }
            if interval.warm_up {
                continue;
            }
            total.add(facts);
            if senders.contains(&side) {
                facts.flows.iter().for_each(|flow| self.sender(flow));
            }
            if receivers.contains(&side) {
                facts.flows.iter().for_each(|flow| self.receiver(flow));
            }
        }
        if !interval.warm_up {
            self.cores(interval);
        }
    }

    fn sender(&mut self, flow: &FlowInterval) {
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

    fn receiver(&mut self, flow: &FlowInterval) {
        if let (Some(received), Some(lost)) = (flow.datagram_count, flow.lost_count) {
            let total = self.datagrams.get_or_insert_default();
            total.0 += received;
            total.1 += lost;
        }
    }

    /// With data both ways, those of the way from client to server.
    fn cores(&mut self, interval: &Interval) {
        let (sending, receiving) = match senders(self.config.direction).first() {
            Some(Side::Server) => (&interval.server, &interval.client),
            Some(Side::Client) | None => (&interval.client, &interval.server),
        };
        self.interrupts.add(receiving);
        for (sender, receiver) in sending.flows.iter().zip(&receiving.flows) {
            place(&mut self.seen, sender.flow).add(sender, receiver);
        }
    }

    /// The figures.
    pub(super) fn summary(mut self, circumstances: Circumstances) -> FlowSummary {
        let Circumstances { client, server, mut notices, dropped_count, complete } = circumstances;
        let sides = receivers(self.config.direction).iter().map(|side| match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        });
        let sides: Vec<&SideTotal> = sides.collect();
        let received_bytes: u64 = sides.iter().map(|side| side.bytes()).sum();
        let flow_goodput_bps = (0..self.config.flows as usize)
            .map(|flow| {
                let of = |side: &&SideTotal| side.received_bytes.get(flow).copied().unwrap_or(0);
                sides.iter().map(|side| rate_bps(of(side), side.measured_ns)).sum()
            })
            .collect();
        let cost = |side: &SideTotal| match received_bytes {
            0 => 0.0,
            // (ns / 1e9) / (bytes / 1e9)
            bytes => side.cpu_ns as f64 / bytes as f64,
        };
        let measured_ns = sides.iter().map(|side| side.measured_ns).max().unwrap_or(0);
        let goodput_bps = sides.iter().map(|side| rate_bps(side.bytes(), side.measured_ns)).sum();
        let cycles = self.client.cycles.zip(self.server.cycles).filter(|_| received_bytes > 0);
        let cycles_per_byte_ratio =
            cycles.map(|(client, server)| (client + server) as f64 / received_bytes as f64);
        let (client_cpu, server_cpu) = (cost(&self.client), cost(&self.server));
        let resent = self.resent();
        self.rtts_ns.sort_unstable();
        notices.extend(
            Evidence {
                config: &self.config,
                client: &client,
                server: &server,
                zerocopy: self.zerocopy,
                min_rtt_ns: self.min_rtt_ns,
                resent_ratio: resent.map(|total| total.resent_bytes as f64 / total.sent_bytes.max(1) as f64),
                seen: &self.seen,
                dropped_count,
            }
            .notices(),
        );
        notices.extend(self.standstills.notice());
        let complete = complete && !self.standstills.any();
        FlowSummary {
            seen_cores: self.seen_cores(),
            requested: self.config,
            client_settings: client,
            server_settings: server,
            measured_ns,
            received_bytes,
            goodput_bps,
            flow_goodput_bps,
            retransmit_count: resent.map(|total| total.segments),
            loss_ratio: self.datagrams.map(|(received, lost)| match received + lost {
                0 => 0.0,
                all => lost as f64 / all as f64,
            }),
            rtt_ns: self.rtts_ns.get(self.rtts_ns.len() / 2).copied(),
            min_rtt_ns: self.min_rtt_ns,
            client_cpu_seconds_per_gb: client_cpu,
            server_cpu_seconds_per_gb: server_cpu,
            cycles_per_byte_ratio,
            zerocopy: self.zerocopy,
            interrupt_core: self.interrupts.found(),
            notices,
            complete,
        }
    }

    fn resent(&self) -> Option<Counters> {
        let flows = self.client.resent.iter().chain(&self.server.resent);
        let differences = flows.filter_map(|flow| {
            let now = flow.now?;
            Some(Counters {
                segments: now.segments.saturating_sub(flow.before.segments),
                resent_bytes: now.resent_bytes.saturating_sub(flow.before.resent_bytes),
                sent_bytes: now.sent_bytes.saturating_sub(flow.before.sent_bytes),
            })
        });
        differences.reduce(|a, b| Counters {
            segments: a.segments + b.segments,
            resent_bytes: a.resent_bytes + b.resent_bytes,
            sent_bytes: a.sent_bytes + b.sent_bytes,
        })
    }

    fn seen_cores(&self) -> Vec<(u32, Option<u32>, Option<u32>)> {
        let sender = |seen: &SeenCores| seen.sender.winner().filter(|_| self.config.sender_cores.is_none());
        let receiver =
            |seen: &SeenCores| seen.receiver.winner().filter(|_| self.config.receiver_cores.is_none());
        (0u32..)
            .zip(&self.seen)
            .map(|(flow, seen)| (flow, sender(seen), receiver(seen)))
            .filter(|(_, sender, receiver)| sender.is_some() || receiver.is_some())
            .collect()
    }
}

#[cfg(test)]
mod tests;
