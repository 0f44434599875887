//! Settings that `flow` chooses where the command line names none: bytes of a
//! write, and the cores of the flows' threads.
//!
//! The best transfer size follows the caches of a processor, and on one machine
//! the placement of the two ends of a flow moves its goodput by more than a
//! factor of two; no table of values carries over to the next processor. So
//! short trials of the flow itself decide: first the placement, then the size.
//! All trials together take a tenth of the test's time, at most a second. Between
//! two hosts cores come from the ranking of `place`, without trials: the path is
//! somebody's, and its queues would remember them.

use std::{net::IpAddr, sync::atomic::AtomicBool, time::Duration};

use clearstream_host::calls::Inspect;
use clearstream_place::{rank::rank, steering::receiving_interface};
use clearstream_schema::{
    ByteCount, CoreList, TimeSpan,
    flow::{Direction, FlowConfig, FlowSummary, Protocol},
    host::HostReport,
    place::Role,
};
use clearstream_workload::HostSet;
use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::CommandError;

/// The most that all trials together take.
const SEARCH_MAX: Duration = Duration::from_secs(1);
/// Trials of a search, at most: two placements beside the scheduler's, three sizes.
const TRIALS_MAX: u32 = 6;
/// A shorter trial tells nothing: thread start-up and buffer autotuning fill it.
const TRIAL_MIN: Duration = Duration::from_millis(50);
/// What a setting must gain to be chosen against the plainer one before it.
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
    if open.cores && config.flows > 1 && config.direction != Direction::Both {
        return by_ranking(hosts, config);
    }
    Ok(None)
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

/// Several flows between two hosts: the best cores of each for its interface, where
/// each has enough of them.
fn by_ranking(hosts: &mut HostSet<'_>, config: &FlowConfig) -> Result<Option<FlowChoice>, CommandError> {
    let flows = count(config);
    let (client, server) = hosts.client_and_server()?;
    let (there, back) = (server.known_address()?, client.address);
    let (client, server) = (client.peer.call(&Inspect {})?, server.peer.call(&Inspect {})?);
    let (near, far) = ((&client, back), (&server, Some(there)));
    let (sender, receiver) = if config.direction == Direction::Reverse { (far, near) } else { (near, far) };
    let of = |(report, address): (&HostReport, Option<IpAddr>), role| -> Vec<u32> {
        let ranked = address.map_or_else(Vec::new, |address| ranked(report, address, role));
        ranked.into_iter().take(flows).collect()
    };
    let (senders, receivers) = (of(sender, Role::Writer), of(receiver, Role::Reader));
    if senders.len() < flows || receivers.len() < flows {
        return Ok(None);
    }
    let reason = "the ranking of `place` for each host's interface".to_owned();
    Ok(Some(FlowChoice { chosen: ChosenSettings::cores(senders, receivers), reason, trials: Vec::new() }))
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
        let summary = clearstream_flow::run_on(self.hosts, &config, self.stop, &mut |_| {})?;
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
        let reason = if chosen == ChosenSettings::default() {
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
