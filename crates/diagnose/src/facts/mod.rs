//! The figures of the flow diagnosed that every rule requests.

mod part;

use std::collections::BTreeMap;

use clearstream_schema::{
    diagnosis::{End, EvidenceItem, ExperimentKind, Role},
    flow::{Direction, FlowConfig, FlowInterval, Interval, SideInterval},
    probe::ProbeDirection,
};

use crate::{
    Evidence, FlowObservation,
    each::{self, EachFlow},
    load::{self, Load},
    series::{SenderSample, median, percentile, rank_correlation},
};

pub(crate) use part::Part;

use part::{most, part};

/// A flow shorter than this many round trips is inconclusive (the kernel's
/// clocks and the congestion window need them).
const ROUND_TRIPS_MIN: f64 = 10.0;

/// Medians over flows and intervals of the sending sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Medians {
    pub(crate) window_limited: f64,
    pub(crate) buffer_limited: f64,
    /// Mean, not median: pauses come in lumps.
    pub(crate) busy: f64,
    pub(crate) window_fill: f64,
    pub(crate) buffer_fill: Option<f64>,
    pub(crate) buffer_bytes: Option<f64>,
    pub(crate) not_sent: f64,
    pub(crate) in_flight: f64,
    pub(crate) rtt_ns: f64,
    /// 10th percentile of the samples: a queue that never empties keeps it up.
    pub(crate) rtt_low_ns: f64,
    /// 90th percentile of the samples: a short queue shows in its peaks only.
    pub(crate) rtt_high_ns: f64,
    pub(crate) peer_window: Option<f64>,
    /// Largest window that the receiver offered.
    pub(crate) peer_window_max: Option<f64>,
    /// Receive memory used / limit at the receiver.
    pub(crate) receive_fill: Option<f64>,
    /// Receive buffer, its usual size.
    pub(crate) receive_buffer: Option<f64>,
    /// Fraction of the samples whose last rate was limited by the application.
    pub(crate) app_limited: f64,
}

/// Facts that the rules evaluate.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) evidence: &'a Evidence,
    pub(crate) config: &'a FlowConfig,
    pub(crate) sender: Part<'a>,
    pub(crate) receiver: Part<'a>,
    pub(crate) goodput_bps: f64,
    pub(crate) flow_count: f64,
    pub(crate) min_rtt_ns: Option<u64>,
    pub(crate) medians: Medians,
    /// Samples that the medians rest on.
    pub(crate) sample_count: usize,
    /// First and last interval used.
    pub(crate) span: (u32, u32),
    pub(crate) seconds: f64,
    pub(crate) sent_bytes: u64,
    pub(crate) resent_bytes: u64,
    /// Of the whole connections, warm-up included: bytes sent, bytes retransmitted,
    /// and samples with retransmissions.
    pub(crate) ever: Losses,
    pub(crate) timeouts: u64,
    /// Reordering events that the senders noticed (`tcpi_reord_seen`).
    pub(crate) reorderings: u64,
    pub(crate) mss_bytes: f64,
    pub(crate) max_pacing_bps: Option<f64>,
    pub(crate) receive_window_scale: Option<u8>,
    pub(crate) socket_mtu_bytes: Option<u32>,
    /// Congestion window at the end / in the middle, all in slow start.
    pub(crate) growth: Option<(f64, bool)>,
    /// Rank correlation of the congestion windows together and the round trip, -1 to
    /// 1: where it is high the windows fill a queue.
    pub(crate) window_to_rtt: Option<f64>,
    /// Core that takes the receiver's packets, with its fraction of the samples.
    pub(crate) incoming_core: Option<(u32, f64)>,
    pub(crate) one_machine: bool,
    /// Each flow by itself.
    pub(crate) each: Vec<EachFlow>,
    /// Congestion control of the sending sockets, as the kernel named it.
    pub(crate) congestion_control: Option<String>,
}

/// Losses of connections from their beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) sent_bytes: u64,
    pub(crate) resent_bytes: u64,
    pub(crate) losing_samples: u64,
}

fn resent(flow: Option<&FlowInterval>) -> u64 {
    flow.and_then(|flow| flow.tcp.as_ref()?.retransmitted_bytes).unwrap_or(0)
}

pub(crate) fn of_end(interval: &Interval, end: End) -> &SideInterval {
    match end {
        End::Client => &interval.client,
        End::Server => &interval.server,
    }
}

impl<'a> Facts<'a> {
    /// Facts of the flow diagnosed; `None` when there is no flow at all.
    pub(crate) fn of(evidence: &'a Evidence) -> Option<Self> {
        Some(Self::of_flow(evidence, requested_flow(evidence)?))
    }

    /// Facts of one of the flows, an experiment for instance.
    pub(crate) fn of_flow(evidence: &'a Evidence, observed: &'a FlowObservation) -> Self {
        Self::of_intervals(evidence, observed, &|interval| !interval.warm_up)
    }

    /// Facts of some of the intervals of a flow; its goodput is that of all of them.
    pub(crate) fn of_intervals(
        evidence: &'a Evidence,
        observed: &'a FlowObservation,
        counts: &dyn Fn(&Interval) -> bool,
    ) -> Self {
        let config = &observed.config;
        let (sending, receiving) = match config.direction {
            Direction::Forward | Direction::Both => (End::Client, End::Server),
            Direction::Reverse => (End::Server, End::Client),
        };
        let used: Vec<&Interval> = observed.intervals.iter().filter(|interval| counts(interval)).collect();
        let span = (used.first().map_or(0, |first| first.index), used.last().map_or(0, |last| last.index));
        let one_machine = observed.summary.as_ref().is_some_and(|summary| {
            let (client, server) = (&summary.client_settings.boot_id, &summary.server_settings.boot_id);
            client.is_some() && client == server
        });
        let mut facts = Self {
            evidence,
            config,
            sender: part(Role::Sender, sending, evidence, &used),
            receiver: part(Role::Receiver, receiving, evidence, &used),
            goodput_bps: observed.goodput_bps(),
            flow_count: f64::from(config.flows.max(1)),
            min_rtt_ns: None,
            medians: Medians::default(),
            sample_count: 0,
            span,
            seconds: 0.0,
            sent_bytes: 0,
            resent_bytes: 0,
            ever: Losses::default(),
            timeouts: 0,
            reorderings: 0,
            mss_bytes: 1448.0,
            max_pacing_bps: None,
            receive_window_scale: None,
            socket_mtu_bytes: None,
            growth: None,
            window_to_rtt: None,
            incoming_core: most(used.iter().flat_map(|interval| {
                of_end(interval, receiving).flows.iter().map(|flow| flow.incoming_core)
            })),
            one_machine,
            each: each::flows(&used, sending, receiving),
            congestion_control: effective_congestion_control(observed, sending),
        };
        facts.read_load(&used);
        facts.read_sockets(observed, sending, receiving, counts);
        facts.min_rtt_ns = facts.shortest(observed);
        facts
    }

    /// On one machine each end observes the agent of the other as a process.
    fn read_load(&mut self, used: &[&Interval]) {
        let sides = |end: End| used.iter().map(move |interval| of_end(interval, end));
        let (sender, receiver) = (self.sender.end, self.receiver.end);
        let mut agents = [load::agents(sides(sender)), load::agents(sides(receiver))];
        // The other end's thread may be in another PID namespace, out of this one's sight.
        let visible = [load::shows(sides(sender), &agents[1]), load::shows(sides(receiver), &agents[0])];
        if self.one_machine {
            let all = agents[0].union(&agents[1]).copied().collect();
            agents = [all, agents[1].union(&agents[0]).copied().collect()];
        }
        self.sender.load = Load::of(sides(sender), &agents[0]);
        self.receiver.load = Load::of(sides(receiver), &agents[1]);
        let run = |part: &Part<'_>| part.thread.map_or(0.0, |thread| thread.run * self.flow_count);
        let others = [run(&self.receiver), run(&self.sender)];
        for (at, part) in [&mut self.sender, &mut self.receiver].into_iter().enumerate() {
            let hidden = if self.one_machine && !visible[at] { others[at] } else { 0.0 };
            if let Some(load) = &mut part.load {
                load.add_unseen(&part.cores, hidden);
            }
        }
    }

    fn read_sockets(
        &mut self,
        observed: &FlowObservation,
        sending: End,
        receiving: End,
        counts: &dyn Fn(&Interval) -> bool,
    ) {
        let mut before = BTreeMap::<u32, &FlowInterval>::new();
        let mut windows = Vec::new();
        let (mut samples, mut app_limited) = (Vec::new(), Vec::new());
        let (mut fills, mut buffers) = (Vec::new(), Vec::new());
        for interval in &observed.intervals {
            let side = of_end(interval, sending);
            let elapsed_ns = side.end_ns.saturating_sub(side.start_ns);
            windows.extend(Some(side).filter(|_| counts(interval)).and_then(window_and_rtt));
            for flow in &side.flows {
                let earlier = before.insert(flow.flow, flow);
                self.ever.losing_samples += u64::from(resent(Some(flow)) > resent(earlier));
                let Some(tcp) = flow.tcp.as_ref().filter(|_| counts(interval)) else { continue };
                self.read_socket(earlier, tcp);
                app_limited.push(f64::from(u8::from(tcp.delivery_rate_app_limited)));
                samples.extend(earlier.and_then(|earlier| SenderSample::of(earlier, flow, elapsed_ns)));
            }
            if !counts(interval) {
                continue;
            }
            self.seconds += elapsed_ns as f64 / 1e9;
            for memory in of_end(interval, receiving).flows.iter().filter_map(|flow| flow.memory) {
                let limit = f64::from(memory.receive_limit_bytes.max(1));
                fills.push(f64::from(memory.receive_used_bytes) / limit);
                buffers.push(limit);
            }
        }
        for flow in before.into_values() {
            let sent = flow.tcp.as_ref().and_then(|tcp| tcp.sent_bytes).unwrap_or(0);
            self.ever.sent_bytes = self.ever.sent_bytes.saturating_add(sent);
            self.ever.resent_bytes = self.ever.resent_bytes.saturating_add(resent(Some(flow)));
        }
        let scale = of_receiver(observed, receiving).and_then(|flow| flow.tcp.as_ref());
        self.receive_window_scale = scale.map(|tcp| tcp.receive_window_scale);
        self.growth = growth(&samples);
        self.window_to_rtt = rank_correlation(&windows);
        self.sample_count = samples.len();
        let middle = |of: fn(&SenderSample) -> f64| median(samples.iter().map(of)).unwrap_or(0.0);
        self.medians = Medians {
            window_limited: middle(|sample| sample.window_limited),
            buffer_limited: middle(|sample| sample.buffer_limited),
            busy: samples.iter().map(|sample| sample.busy).sum::<f64>() / samples.len().max(1) as f64,
            window_fill: middle(|sample| sample.window_fill),
            buffer_fill: median(samples.iter().filter_map(|sample| sample.buffer_fill)),
            buffer_bytes: median(samples.iter().filter_map(|sample| sample.buffer_bytes)),
            not_sent: middle(|sample| sample.not_sent),
            in_flight: middle(|sample| sample.in_flight),
            rtt_ns: middle(|sample| sample.rtt_ns),
            rtt_low_ns: percentile(samples.iter().map(|sample| sample.rtt_ns), 10).unwrap_or(0.0),
            rtt_high_ns: percentile(samples.iter().map(|sample| sample.rtt_ns), 90).unwrap_or(0.0),
            peer_window: median(samples.iter().filter_map(|sample| sample.peer_window)),
            peer_window_max: samples.iter().filter_map(|sample| sample.peer_window).reduce(f64::max),
            receive_fill: median(fills),
            receive_buffer: median(buffers),
            app_limited: app_limited.iter().sum::<f64>() / app_limited.len().max(1) as f64,
        };
    }

    fn read_socket(&mut self, earlier: Option<&FlowInterval>, tcp: &clearstream_schema::tcp_info::TcpInfo) {
        let earlier = earlier.and_then(|flow| flow.tcp.as_ref());
        let since = |of: fn(&clearstream_schema::tcp_info::TcpInfo) -> Option<u64>| {
            let now = of(tcp).unwrap_or(0);
            now.saturating_sub(earlier.and_then(of).unwrap_or(now))
        };
        self.sent_bytes = self.sent_bytes.saturating_add(since(|tcp| tcp.sent_bytes));
        self.resent_bytes = self.resent_bytes.saturating_add(since(|tcp| tcp.retransmitted_bytes));
        self.timeouts += since(|tcp| tcp.timeout_count.map(u64::from)).min(u64::from(u16::MAX));
        self.reorderings += since(|tcp| tcp.reorder_seen_count.map(u64::from)).min(u64::from(u32::MAX));
        if tcp.send_mss_bytes > 0 {
            self.mss_bytes = f64::from(tcp.send_mss_bytes);
        }
        self.max_pacing_bps = tcp.max_pacing_rate_bps.map(|rate| rate as f64).or(self.max_pacing_bps);
        self.socket_mtu_bytes = Some(tcp.path_mtu_bytes).filter(|mtu| *mtu > 0);
    }

    fn shortest(&self, observed: &FlowObservation) -> Option<u64> {
        let probed = self.evidence.probe.iter().flat_map(|probe| &probe.directions);
        let probed = probed.flat_map(|path| path.udp.iter().chain(&path.tcp)).map(|stats| stats.min_ns);
        let summary = observed.summary.as_ref().and_then(|summary| summary.min_rtt_ns);
        // A probe's turn-around time is subtracted: what is left may be nothing.
        probed.chain(summary).filter(|rtt| *rtt > 0).min()
    }

    /// Round-trip time of the empty path, at least a microsecond.
    pub(crate) fn base_rtt_ns(&self) -> u64 {
        self.min_rtt_ns.unwrap_or(self.medians.rtt_ns as u64).max(1000)
    }

    /// Time spent in queues.
    pub(crate) fn queue_ns(&self) -> u64 {
        (self.medians.rtt_ns as u64).saturating_sub(self.base_rtt_ns())
    }

    /// Whether the flow lasted long enough to be conclusive.
    pub(crate) fn is_long_enough(&self) -> bool {
        self.sample_count >= 3 && self.seconds * 1e9 >= ROUND_TRIPS_MIN * self.base_rtt_ns() as f64
    }

    /// Bytes retransmitted / bytes sent.
    pub(crate) fn loss_ratio(&self) -> f64 {
        match self.sent_bytes {
            0 => 0.0,
            sent => (self.resent_bytes as f64 / sent as f64).min(1.0),
        }
    }

    /// As [`Self::loss_ratio`]; of the whole connections where the measured part
    /// saw no loss: a window that losses have cut takes seconds to recover.
    pub(crate) fn recent_loss_ratio(&self) -> f64 {
        match (self.resent_bytes, self.ever.sent_bytes) {
            (0, sent) if sent > 0 => (self.ever.resent_bytes as f64 / sent as f64).min(1.0),
            _ => self.loss_ratio(),
        }
    }

    /// Losses per segment, those of one sample as one. TCP halves its window once
    /// in a round trip, however many segments were lost in it: congestion signals,
    /// not segments, are what the models count (Mathis, Semke, Mahdavi, Ott 1997,
    /// section 2). A burst of joined packets is one of many segments.
    pub(crate) fn loss_event_ratio(&self) -> f64 {
        let segments = self.ever.sent_bytes as f64 / self.mss_bytes.max(1.0);
        (self.ever.losing_samples as f64 / segments.max(1.0)).min(self.recent_loss_ratio())
    }

    /// Results of the probe in the direction of the data.
    pub(crate) fn probed(&self) -> Option<&ProbeDirection> {
        let place = usize::from(self.sender.end == End::Server);
        self.evidence.probe.as_ref()?.directions.get(place)
    }

    /// Data was sent and none arrived.
    pub(crate) fn stalled(&self) -> bool {
        requested_flow(self.evidence).is_some_and(|flow| {
            let nothing = flow.summary.as_ref().is_none_or(|summary| summary.received_bytes == 0);
            nothing && (flow.failure.is_some() || flow.summary.is_some())
        })
    }

    /// An item of evidence from the samples of the flow.
    pub(crate) fn sampled(&self, statement: impl Into<String>, what: &str) -> EvidenceItem {
        let (first, last) = self.span;
        let flows = match self.config.flows {
            1 => "flow 0".to_owned(),
            count => format!("flows 0 to {}", count.saturating_sub(1)),
        };
        EvidenceItem {
            statement: statement.into(),
            source: format!("{flows}, intervals {first} to {last}: {what}"),
        }
    }

    /// Both ends, the sender first.
    pub(crate) fn parts(&self) -> [&Part<'a>; 2] {
        [&self.sender, &self.receiver]
    }

    /// A path of microseconds: its round trip is the hosts' own work.
    pub(crate) fn is_local(&self) -> bool {
        self.base_rtt_ns() < 1_000_000
    }

    /// Goodput of an experiment.
    pub(crate) fn experiment(&self, kind: ExperimentKind) -> Option<&'a FlowObservation> {
        self.evidence.flows.iter().find(|flow| flow.kind == kind && flow.goodput_bps() > 0.0)
    }
}

fn effective_congestion_control(observed: &FlowObservation, sending: End) -> Option<String> {
    let summary = observed.summary.as_ref()?;
    let settings = match sending {
        End::Client => &summary.client_settings,
        End::Server => &summary.server_settings,
    };
    let effective = settings.flows.first().and_then(|flow| flow.congestion_control.clone());
    effective.or_else(|| observed.config.congestion_control.clone())
}

/// The flow diagnosed.
pub(crate) fn requested_flow(evidence: &Evidence) -> Option<&FlowObservation> {
    let requested = evidence.flows.iter().find(|flow| flow.kind == ExperimentKind::AsRequested);
    requested.or(evidence.flows.first())
}

fn of_receiver(observed: &FlowObservation, receiving: End) -> Option<&FlowInterval> {
    observed.intervals.iter().rev().find_map(|interval| of_end(interval, receiving).flows.first())
}

/// Congestion windows of all flows of a side together, and their mean round trip.
fn window_and_rtt(side: &SideInterval) -> Option<(f64, f64)> {
    let sockets: Vec<_> = side.flows.iter().map(|flow| flow.tcp.as_ref()).collect::<Option<_>>()?;
    let windows = sockets.iter().map(|tcp| f64::from(tcp.congestion_window_count)).sum();
    let rtts: f64 = sockets.iter().map(|tcp| tcp.rtt_ns as f64).sum();
    (!sockets.is_empty()).then(|| (windows, rtts / sockets.len() as f64))
}

/// Growth of the congestion window from the first half to the second, and
/// whether slow start never ended.
fn growth(samples: &[SenderSample]) -> Option<(f64, bool)> {
    let (first, second) = samples.split_at(samples.len() / 2);
    let middle = |part: &[SenderSample]| median(part.iter().map(|sample| sample.congestion_window));
    let (before, after) = (middle(first)?, middle(second)?);
    Some((after / before.max(1.0), samples.iter().all(|sample| sample.slow_start)))
}
