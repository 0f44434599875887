//! Accumulates the results of a test interval by interval: memory grows only by one number per sample.

mod side;

use clearstream_schema::flow::{
    Direction, DirectionSummary, FlowConfig, FlowSettings, FlowSummary, Interval, ZerocopyCount,
};
use clearstream_schema::notice::Notice;
use clearstream_stats::nearest_rank;

use super::{
    Side,
    cores::{InterruptVotes, SeenCores},
    direction::directions,
    notices::Evidence,
    receivers, senders,
    stall::Stalls,
};
use side::{Counters, SideTotal, loss_ratio, place, rate_bps};

/// Accumulator of intervals.
#[derive(Debug)]
pub(super) struct Totals {
    config: FlowConfig,
    client: SideTotal,
    server: SideTotal,
    interrupts: InterruptVotes,
    seen: Vec<SeenCores>,
    stalls: Stalls,
}

/// Inputs of the summary beside the intervals.
pub(super) struct SummaryInputs {
    pub(super) client: FlowSettings,
    pub(super) server: FlowSettings,
    pub(super) notices: Vec<Notice>,
    pub(super) dropped_count: u64,
    pub(super) complete: bool,
}

impl Totals {
    pub(super) fn new(config: &FlowConfig) -> Self {
        Self {
            config: config.clone(),
            client: SideTotal::default(),
            server: SideTotal::default(),
            interrupts: InterruptVotes::default(),
            seen: Vec::new(),
            stalls: Stalls::new(config),
        }
    }

    /// Adds the next interval.
    pub(super) fn add(&mut self, interval: &Interval) {
        let sides = [(Side::Client, &interval.client), (Side::Server, &interval.server)];
        self.stalls.add(sides);
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
                facts.flows.iter().for_each(|flow| total.sender(flow));
            }
            if receivers.contains(&side) {
                facts.flows.iter().for_each(|flow| total.receiver(flow));
            }
        }
        if !interval.warm_up {
            self.cores(interval);
        }
    }

    /// In a bidirectional test, those of the direction from client to server.
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

    /// Computes the summary.
    pub(super) fn summary(mut self, inputs: SummaryInputs) -> FlowSummary {
        let SummaryInputs { client, server, mut notices, dropped_count, complete } = inputs;
        for side in [&mut self.client, &mut self.server] {
            side.rtts_ns.sort_unstable();
        }
        let directions: Vec<DirectionSummary> = self.directions();
        let sides = [&self.client, &self.server];
        let received_bytes: u64 = directions.iter().map(|one| one.received_bytes).sum();
        let flow_goodput_bps = (0..self.config.flows as usize)
            .map(|flow| directions.iter().map(|one| one.flow_goodput_bps[flow]).sum())
            .collect();
        let cycles = self.client.cycles.zip(self.server.cycles).filter(|_| received_bytes > 0);
        let mut rtts_ns: Vec<u64> = sides.iter().flat_map(|side| side.rtts_ns.iter().copied()).collect();
        rtts_ns.sort_unstable();
        let min_rtt_ns = sides.iter().filter_map(|side| side.min_rtt_ns).min();
        let zerocopy = sides.iter().filter_map(|side| side.zerocopy).reduce(|a, b| ZerocopyCount {
            completed_count: a.completed_count + b.completed_count,
            copied_count: a.copied_count + b.copied_count,
        });
        let resent = sides.iter().filter_map(|side| side.resent_total()).reduce(Counters::plus);
        notices.extend(
            Evidence {
                config: &self.config,
                client: &client,
                server: &server,
                zerocopy,
                min_rtt_ns,
                resent_ratio: resent.map(|total| total.resent_bytes as f64 / total.sent_bytes.max(1) as f64),
                seen: &self.seen,
                dropped_count,
            }
            .notices(),
        );
        notices.extend(self.stalls.notice());
        let datagrams = sides.iter().filter_map(|side| side.datagrams).reduce(|a, b| a.plus(b));
        FlowSummary {
            seen_cores: self.seen_cores(),
            client_settings: client,
            server_settings: server,
            measured_ns: directions.iter().map(|one| one.measured_ns).max().unwrap_or(0),
            received_bytes,
            goodput_bps: directions.iter().map(|one| one.goodput_bps).sum(),
            flow_goodput_bps,
            retransmit_count: resent.map(|total| total.segments),
            loss_ratio: datagrams.map(loss_ratio),
            rtt_ns: nearest_rank(&rtts_ns, 50),
            min_rtt_ns,
            client_cpu_seconds_per_gb: self.client.cpu_seconds_per_gb(received_bytes),
            server_cpu_seconds_per_gb: self.server.cpu_seconds_per_gb(received_bytes),
            client_cpu: self.client.cpu_use(),
            server_cpu: self.server.cpu_use(),
            cycles_per_byte_ratio: cycles
                .map(|(client, server)| (client + server) as f64 / received_bytes as f64),
            zerocopy,
            adaptation: None,
            interrupt_core: self.interrupts.found(),
            notices,
            complete: complete && !self.stalls.any(),
            directions,
            requested: self.config,
        }
    }

    /// Each direction: its receiver's results beside its sender's.
    fn directions(&self) -> Vec<DirectionSummary> {
        let of = |(direction, sender): &(Direction, Side)| {
            let (sender, receiver) = match sender {
                Side::Client => (&self.client, &self.server),
                Side::Server => (&self.server, &self.client),
            };
            let flow = |flow: usize| receiver.received_bytes.get(flow).copied().unwrap_or(0);
            let flows = 0..self.config.flows as usize;
            DirectionSummary {
                direction: *direction,
                measured_ns: receiver.measured_ns,
                received_bytes: receiver.bytes(),
                goodput_bps: rate_bps(receiver.bytes(), receiver.measured_ns),
                flow_goodput_bps: flows.map(|index| rate_bps(flow(index), receiver.measured_ns)).collect(),
                retransmit_count: sender.resent_total().map(|total| total.segments),
                rtt_ns: nearest_rank(&sender.rtts_ns, 50),
                min_rtt_ns: sender.min_rtt_ns,
                datagram_count: receiver.datagrams.map(|count| count.received),
                lost_count: receiver.datagrams.map(|count| count.lost),
                loss_ratio: receiver.datagrams.map(loss_ratio),
                reordered_count: receiver.datagrams.map(|count| count.reordered),
                jitter_ns: receiver.jitter_ns(),
            }
        };
        directions(self.config.direction).iter().map(of).collect()
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
