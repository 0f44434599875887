//! Bulk flows with an application beside them, as a study requests it.

use clearstream_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{Exploration, ExplorationConfig, ExplorationTransport, Explored};
use clearstream_schema::{
    ByteCount, TimeSpan,
    flow::FlowConfig,
    notice::Notice,
    outcome::{MetricKind, Outcome, Unit},
};

/// Bulk flows between two hosts, while two ranks, one on each of them, explore a model repeatedly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LiveTrafficConfig {
    /// Bulk flows
    pub flows: u32,
    /// Time to measure, after the warm-up
    pub duration: TimeSpan,
    /// Leading part that does not count
    pub warm_up: TimeSpan,
    /// Interval of the samples
    pub interval: TimeSpan,
    /// Congestion control of the bulk flows (default: the host's)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Name of a model that comes with the program
    pub model: String,
    /// Values of its parameters, as in "N=8"
    pub define: String,
    /// Bytes that a message between ranks holds at most
    pub message_size: ByteCount,
    /// Time between two explorations
    pub pause: TimeSpan,
    /// What carries the messages between the ranks: tcp needs nothing, the others an MPI
    pub transport: ExplorationTransport,
    /// Command that starts an MPI job, with options of your own (default: mpirun)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpirun: Option<String>,
    /// Library with this site's MPI, built by `make extras` (default: beside the program)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_library: Option<String>,
}

impl Default for LiveTrafficConfig {
    fn default() -> Self {
        let exploration = ExplorationConfig::default();
        Self {
            flows: 2,
            duration: TimeSpan::from_seconds(60),
            warm_up: TimeSpan::from_seconds(2),
            interval: TimeSpan::from_seconds(1),
            congestion_control: None,
            model: exploration.model,
            define: exploration.define,
            message_size: exploration.message_size,
            pause: TimeSpan::from_seconds(2),
            transport: ExplorationTransport::Tcp,
            mpirun: None,
            mpi_library: None,
        }
    }
}

/// Explorations that ended while the flows ran.
const EXPLORATIONS: MetricKind = MetricKind::higher("explorations", Unit::Count);
/// Rate of the messages of the fastest of them, both directions together, mean over its time.
const APPLICATION_RATE: MetricKind = MetricKind::higher("application-rate", Unit::BitsPerSecond);

impl LiveTrafficConfig {
    /// The bulk flows.
    pub fn bulk(&self) -> FlowConfig {
        FlowConfig {
            flows: self.flows,
            duration: self.duration,
            warm_up: self.warm_up,
            interval: self.interval,
            congestion_control: self.congestion_control.clone(),
            ..FlowConfig::default()
        }
    }

    /// The application.
    pub fn exploration(&self) -> ExplorationConfig {
        ExplorationConfig {
            model: self.model.clone(),
            define: self.define.clone(),
            message_size: self.message_size,
            transport: self.transport,
            mpirun: self.mpirun.clone(),
            mpi_library: self.mpi_library.clone(),
            ..ExplorationConfig::default()
        }
    }

    /// Metrics that a trial can have, the headline first. A rate of the application is that of an exploration that ended.
    pub fn metrics(&self) -> Vec<MetricKind> {
        let mut kinds = self.bulk().metrics();
        kinds.extend([EXPLORATIONS, APPLICATION_RATE]);
        kinds
    }
}

/// The outcome of the flows, with what the application did meanwhile.
pub fn beside(flows: Outcome, found: &Explored) -> Outcome {
    let mut outcome = flows;
    outcome.metrics.push(EXPLORATIONS.of(found.count as f64));
    match found.fastest() {
        Some(fastest) => outcome.metrics.push(APPLICATION_RATE.of(rate_bps(fastest))),
        None => outcome.notices.push(Notice {
            id: "application-unfinished".to_owned(),
            message: "the application ran beside the flows, but its first exploration did not end within the trial: \
                      its rate is not measured; a longer duration or a smaller model gives one"
                .to_owned(),
        }),
    }
    outcome
}

/// Mean rate of its messages, of all ranks together.
fn rate_bps(exploration: &Exploration) -> f64 {
    let bytes: u64 = exploration.ranks.iter().flat_map(|rank| &rank.sent_bytes).sum();
    bytes as f64 * 8e9 / exploration.duration_ns.max(1) as f64
}
