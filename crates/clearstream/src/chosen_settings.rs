//! Settings that `flow` chooses where the command line names none: bytes of a
//! write, and the cores of the flows' threads.
//!
//! The best transfer size follows the caches of a processor, and on one machine
//! the placement of the two ends of a flow moves its goodput by more than a
//! factor of two; no table of values carries over to the next processor. So
//! short trials of the flow itself decide: first the placement, then the size.
//! All trials together take a tenth of the test's time, at most a second. Between
//! two hosts there are no trials: they would load a shared path and leave their
//! packets in its queues. Cores come from the ranking of `place`, the size from the hosts'
//! second-level caches.

use std::{net::IpAddr, sync::atomic::AtomicBool, time::Duration};

use clearstream_host::calls::Inspect;
use clearstream_place::document::Role;
use clearstream_place::{rank::rank, steering::receiving_interface};
use clearstream_schema::JsonSchema;
use clearstream_schema::{
    ByteCount, CoreList, TimeSpan,
    flow::{Direction, FlowConfig, FlowSummary, Protocol},
    host::HostReport,
};
use clearstream_workload::HostSet;
use serde::Serialize;

use crate::exit::CommandError;

/// The most that all trials together take.
const SEARCH_MAX: Duration = Duration::from_secs(1);
/// Trials of a search, at most: two placements beside the scheduler's, three sizes.
const TRIALS_MAX: u32 = 6;
/// Shortest trial: thread start-up and buffer autotuning dominate shorter ones.
const TRIAL_MIN: Duration = Duration::from_millis(50);

/// How often a trial in which nothing arrived is repeated: a stalled
/// machine, such as a guest of a busy host, is no evidence about a setting.
const EMPTY_REPEATS: u32 = 2;
/// Least and largest size that a cache leads to between two hosts.
const TRANSFER_LEAST: u64 = 256 << 10;
const TRANSFER_MOST: u64 = 2 << 20;
/// Minimum gain over the simpler setting before it.
const GAIN_MIN: f64 = 1.05;

/// Who chooses cores that no list names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CoreChoice {
    /// `flow`: short trials within one machine, the ranking of `place` for several flows between two
    #[default]
    Measured,
    /// The kernel's scheduler
    Scheduler,
}

/// A short trial of the search.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ChoiceTrial {
    /// Settings that differ from the command line's.
    #[serde(flatten)]
    settings: ChosenSettings,
    /// Goodput, all flows.
    goodput_bps: f64,
}

/// Settings of a candidate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub struct ChosenSettings {
    /// Bytes of one write or read.
    #[serde(skip_serializing_if = "Option::is_none")]
    transfer: Option<ByteCount>,
    /// Send buffer (`SO_SNDBUF`).
    #[serde(skip_serializing_if = "Option::is_none")]
    send_buffer: Option<ByteCount>,
    /// Cores of the sending threads; absent for the scheduler's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    sender_cores: Option<CoreList>,
    /// Cores of the receiving threads; absent for the scheduler's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver_cores: Option<CoreList>,
}

/// What was chosen, and why.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FlowChoice {
    /// The settings of the test.
    chosen: ChosenSettings,
    /// Why these.
    reason: String,
    /// The trials that decided, in their order.
    trials: Vec<ChoiceTrial>,
}

/// Settings of the test, chosen where `config` names none; `None` where there is
/// nothing to choose.
///
/// # Errors
/// A trial failed: the test itself would, too.
pub fn choose(
    hosts: &mut HostSet<'_>,
    config: &FlowConfig,
    cores: CoreChoice,
    stop: &AtomicBool,
) -> Result<Option<FlowChoice>, CommandError> {
    let open = Open::of(config, cores);
    if !open.transfer && !open.cores {
        return Ok(None);
    }
    if within_one_machine(hosts)? {
        return Search::new(hosts, config, stop).run(&open);
    }
    between_hosts(hosts, config, &open)
}

/// Both ends are on this machine, and no delay line makes the path a long one,
/// where the window limits a short trial and not the copying.
fn within_one_machine(hosts: &mut HostSet<'_>) -> Result<bool, CommandError> {
    if hosts.lab().is_some() {
        return Ok(hosts.delay_lines()?.is_empty());
    }
    let (_, server) = hosts.client_and_server()?;
    Ok(server.address.is_some_and(|address| address.is_loopback()))
}

/// A host's description, and its address on the path.
type Described<'a> = (&'a HostReport, Option<IpAddr>);

/// Settings from the descriptions of the two hosts.
fn between_hosts(
    hosts: &mut HostSet<'_>,
    config: &FlowConfig,
    open: &Open,
) -> Result<Option<FlowChoice>, CommandError> {
    let ranks = open.cores && config.flows > 1 && config.direction != Direction::Both;
    if !ranks && !open.transfer {
        return Ok(None);
    }
    let (client, server) = hosts.client_and_server()?;
    let (there, back) = (server.known_address()?, client.address);
    let (client, server) = (client.peer.call(&Inspect {})?, server.peer.call(&Inspect {})?);
    let (mut chosen, mut reasons) = (ChosenSettings::default(), Vec::new());
    if open.transfer
        && let Some((size, reason)) = size_by_cache(&client, &server)
    {
        chosen.transfer = Some(size);
        reasons.push(reason);
    }
    let ends = ((&client, back), (&server, Some(there)));
    if ranks && let Some((senders, receivers)) = by_ranking(ends, config) {
        (chosen.sender_cores, chosen.receiver_cores) = (Some(senders), Some(receivers));
        reasons.push("cores: the ranking of `place` for each host's interface".to_owned());
    }
    let reason = reasons.join("; ");
    Ok((!reason.is_empty()).then_some(FlowChoice { chosen, reason, trials: Vec::new() }))
}

/// Several flows: the best cores of each host for its interface, where each has enough of
/// them; the senders' and the receivers'.
fn by_ranking(
    (near, far): (Described<'_>, Described<'_>),
    config: &FlowConfig,
) -> Option<(CoreList, CoreList)> {
    let flows = count(config);
    let (sender, receiver) = if config.direction == Direction::Reverse { (far, near) } else { (near, far) };
    let of = |(report, address): Described<'_>, role| -> Vec<u32> {
        let ranked = address.map_or_else(Vec::new, |address| ranked(report, address, role));
        ranked.into_iter().take(flows).collect()
    };
    let (senders, receivers) = (of(sender, Role::Writer), of(receiver, Role::Reader));
    (senders.len() == flows && receivers.len() == flows).then_some((CoreList(senders), CoreList(receivers)))
}

/// A transfer that the smaller second-level cache of both hosts holds beside the packets
/// that it is copied to or from: half of that cache, a power of two. Smaller transfers
/// cost more system calls (a third more CPU time per byte with 128 KiB than with 512 KiB),
/// larger ones leave the cache (docs/guide/flow.md has the figures).
fn size_by_cache(client: &HostReport, server: &HostReport) -> Option<(ByteCount, String)> {
    let cache = client.l2_cache_bytes?.min(server.l2_cache_bytes?);
    let half = (cache / 2).clamp(TRANSFER_LEAST, TRANSFER_MOST);
    let size = ByteCount(1 << half.ilog2());
    Some((size, format!("transfer: half of the smaller L2 cache of both hosts, {} a core", ByteCount(cache))))
}

fn count(config: &FlowConfig) -> usize {
    usize::try_from(config.flows).unwrap_or(usize::MAX).max(1)
}

/// What the command line leaves open.
struct Open {
    transfer: bool,
    cores: bool,
}

impl Open {
    fn of(config: &FlowConfig, cores: CoreChoice) -> Self {
        // Copying is not what limits these, so that trials of it would mislead.
        let other_limit = config.protocol == Protocol::Udp
            || config.bytes.is_some()
            || config.steer
            // Ports of a trial stay in TIME_WAIT and are missing in the test.
            || config.source_port.is_some()
            || config.source_ports.is_some()
            || config.pacing.is_some()
            || config.receiver_pause.is_some()
            || config.receiver_work.is_some()
            || config.burst_flows > 0;
        let named = config.sender_cores.is_some() || config.receiver_cores.is_some();
        Self {
            transfer: !other_limit && config.transfer.is_none(),
            cores: !other_limit && !named && cores == CoreChoice::Measured,
        }
    }
}

/// The trials.
struct Search<'a, 'h> {
    hosts: &'a mut HostSet<'h>,
    config: &'a FlowConfig,
    stop: &'a AtomicBool,
    time: Duration,
    trials: Vec<ChoiceTrial>,
}

impl<'a, 'h> Search<'a, 'h> {
    fn new(hosts: &'a mut HostSet<'h>, config: &'a FlowConfig, stop: &'a AtomicBool) -> Self {
        let time = (config.duration.to_std() / 10).min(SEARCH_MAX) / TRIALS_MAX;
        Self { hosts, config, stop, time, trials: Vec::new() }
    }

    fn run(mut self, open: &Open) -> Result<Option<FlowChoice>, CommandError> {
        if self.time < TRIAL_MIN {
            return Ok(None);
        }
        let Some(first) = self.trial(&ChosenSettings::default())? else { return Ok(None) };
        let mut best = (ChosenSettings::default(), first.goodput_bps);
        if open.cores {
            for settings in self.placements()? {
                self.better(&mut best, settings)?;
            }
        }
        if open.transfer {
            let placed = best.0.clone();
            for settings in self.sizes(&placed) {
                self.better(&mut best, settings)?;
            }
        }
        Ok(Some(self.conclude(best)))
    }

    /// Tries a candidate and keeps it when it is clearly faster.
    fn better(
        &mut self,
        best: &mut (ChosenSettings, f64),
        settings: ChosenSettings,
    ) -> Result<(), CommandError> {
        if let Some(summary) = self.trial(&settings)?
            && summary.goodput_bps > best.1 * GAIN_MIN
        {
            *best = (settings, summary.goodput_bps);
        }
        Ok(())
    }

    /// A short flow with these settings; `None` when it was interrupted.
    fn trial(&mut self, settings: &ChosenSettings) -> Result<Option<FlowSummary>, CommandError> {
        let config = FlowConfig {
            warm_up: span(self.time / 4),
            duration: span(self.time),
            interval: span(self.time),
            ..settings.applied(self.config)
        };
        let mut summary = clearstream_flow::run_on(self.hosts, &config, self.stop, &mut |_| {})?;
        let mut repeats = 0..EMPTY_REPEATS;
        while summary.complete && summary.received_bytes == 0 && repeats.next().is_some() {
            summary = clearstream_flow::run_on(self.hosts, &config, self.stop, &mut |_| {})?;
        }
        if !summary.complete {
            return Ok(None);
        }
        self.trials.push(ChoiceTrial { settings: settings.clone(), goodput_bps: summary.goodput_bps });
        Ok(Some(summary))
    }

    /// Both ends of each flow on one core, and on two cores next to each other.
    fn placements(&mut self) -> Result<Vec<ChosenSettings>, CommandError> {
        let (_, server) = self.hosts.client_and_server()?;
        let address = server.known_address()?;
        let cores = ranked(&server.peer.call(&Inspect {})?, address, Role::Interrupt);
        let flows = count(self.config);
        let mut placements = Vec::new();
        if !cores.is_empty() {
            let one: Vec<u32> = cores.iter().copied().take(flows).collect();
            placements.push(ChosenSettings::cores(one.clone(), one));
        }
        if cores.len() >= flows.saturating_mul(2) {
            let of = |first: usize| cores.iter().copied().skip(first).step_by(2).take(flows).collect();
            placements.push(ChosenSettings::cores(of(0), of(1)));
        }
        Ok(placements)
    }

    /// Sizes around those that suit caches of a core (a quarter to two MiB).
    fn sizes(&self, placed: &ChosenSettings) -> Vec<ChosenSettings> {
        let sized = |size| ChosenSettings { transfer: Some(ByteCount(size)), ..placed.clone() };
        let large = sized(2 << 20);
        // What waits in a small send buffer is still in the cache when it is read.
        let free = self.config.window.is_none() && self.config.send_buffer.is_none();
        let large =
            if free { ChosenSettings { send_buffer: Some(ByteCount(1 << 20)), ..large } } else { large };
        vec![sized(256 << 10), large]
    }

    fn conclude(self, (chosen, goodput): (ChosenSettings, f64)) -> FlowChoice {
        let plain = self.trials.first().map_or(goodput, |trial| trial.goodput_bps);
        let reason = if plain == 0.0 {
            format!("nothing arrived with the defaults, in {} short trials", 1 + EMPTY_REPEATS)
        } else if chosen == ChosenSettings::default() {
            format!(
                "no setting was faster than the defaults by {:.0} % in {} short trials",
                (GAIN_MIN - 1.0) * 100.0,
                self.trials.len()
            )
        } else {
            format!(
                "{:.2} times the defaults' goodput in {} short trials",
                goodput / plain,
                self.trials.len()
            )
        };
        FlowChoice { chosen, reason, trials: self.trials }
    }
}

fn span(time: Duration) -> TimeSpan {
    TimeSpan(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Cores of a host for one role, best first; of one whose interface is not clear,
/// all that are online and allowed.
fn ranked(report: &HostReport, address: IpAddr, role: Role) -> Vec<u32> {
    let ranking = receiving_interface(report, None, address)
        .and_then(|nic| rank(report, &nic.name, None))
        .ok()
        .and_then(|ranking| ranking.roles.into_iter().find(|ranked| ranked.role == role));
    match ranking {
        Some(ranking) => ranking.cores.into_iter().map(|ranked| ranked.core).collect(),
        None => report
            .processing_units
            .iter()
            .filter(|unit| unit.online && unit.allowed)
            .map(|unit| unit.core)
            .collect(),
    }
}

impl ChosenSettings {
    fn cores(senders: Vec<u32>, receivers: Vec<u32>) -> Self {
        Self {
            sender_cores: Some(CoreList(senders)),
            receiver_cores: Some(CoreList(receivers)),
            ..Self::default()
        }
    }

    /// The test with these settings in place of what it leaves open.
    fn applied(&self, config: &FlowConfig) -> FlowConfig {
        FlowConfig {
            transfer: self.transfer.or(config.transfer),
            send_buffer: self.send_buffer.or(config.send_buffer),
            sender_cores: self.sender_cores.clone().or_else(|| config.sender_cores.clone()),
            receiver_cores: self.receiver_cores.clone().or_else(|| config.receiver_cores.clone()),
            ..config.clone()
        }
    }
}

impl FlowChoice {
    /// The test as it is to run.
    pub fn applied(&self, config: &FlowConfig) -> FlowConfig {
        self.chosen.applied(config)
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        let chosen = &self.chosen;
        parts.extend(chosen.transfer.map(|size| format!("--transfer {size}")));
        parts.extend(chosen.send_buffer.map(|size| format!("--send-buffer {size}")));
        parts.extend(chosen.sender_cores.as_ref().map(|cores| format!("--sender-cores {cores}")));
        parts.extend(chosen.receiver_cores.as_ref().map(|cores| format!("--receiver-cores {cores}")));
        let settings = if parts.is_empty() { "defaults".to_owned() } else { parts.join(" ") };
        format!("chosen: {settings} ({})", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L2 caches of servers: 256 KiB (Skylake client, Broadwell), 512 KiB (Zen 2), 1 MiB
    /// (Skylake server, Zen 4), 2 MiB (Sapphire Rapids).
    #[test]
    fn the_smaller_cache_decides_the_transfer() {
        let host = |kib: u64| HostReport { l2_cache_bytes: Some(kib << 10), ..HostReport::default() };
        let size = |one, other| size_by_cache(&host(one), &host(other)).map(|(size, _)| size.0 >> 10);
        assert_eq!(size(1024, 1024), Some(512));
        assert_eq!(size(2048, 1024), Some(512));
        assert_eq!(size(512, 2048), Some(256));
        assert_eq!(size(256, 256), Some(256), "shorter transfers cost more system calls than they save");
        assert_eq!(size(1280, 1280), Some(512), "a power of two");
        assert_eq!(size(65536, 65536), Some(2048));
        let reason = size_by_cache(&host(2048), &host(1024)).map(|(_, reason)| reason);
        let expected = "transfer: half of the smaller L2 cache of both hosts, 1MiB a core";
        assert_eq!(reason.as_deref(), Some(expected));
        assert!(size_by_cache(&host(1024), &HostReport::default()).is_none());
    }
}
