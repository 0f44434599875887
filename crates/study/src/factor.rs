//! What a factor is and which levels it takes.

use clearstream_configfile::{did_you_mean, explain, unknown_name};
use clearstream_schema::{
    CoreList, flow::FlowConfig, gateways::GatewayConfig, probe::ProbeConfig, study::Workload,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Words for core levels that are resolved on the host.
pub(crate) const CORE_WORDS: [&str; 2] = [EVERY_CORE, REPRESENTATIVE_CORES];
pub(crate) const EVERY_CORE: &str = "every-core";
pub(crate) const REPRESENTATIVE_CORES: &str = "representative-cores";

const MTU: &str = "mtu";
pub(crate) const RECEIVE_STEERING: &str = "receive-steering";
const ROUTES_OVER: &str = "routes-over";
/// Factors that only a lab has.
const LAB_ONLY: [&str; 3] = [MTU, RECEIVE_STEERING, ROUTES_OVER];

/// Where a level goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    /// Cores of the sending threads.
    SenderCores,
    /// Cores of the receiving threads.
    ReceiverCores,
    /// MTU of the lab's links.
    Mtu,
    /// Cores that received packets are steered to, in the lab.
    ReceiveSteering,
    /// Gateways of the lab that traffic is routed over.
    RoutesOver,
    /// Any other option of the workload; the name is its key.
    Option,
}

/// The settings of a cell that are no options of the workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// MTU of the lab's links; as the lab file says when absent.
    pub mtu_bytes: Option<u32>,
    /// Steering of received packets on the receiving host; as the lab file says when absent.
    pub receive_steering: Option<Steering>,
    /// Lab interface of the listening host to measure to; its first one when absent.
    pub interface: Option<String>,
    /// Routes over the lab's gateways; none are made when absent.
    pub routes_over: Option<RoutesOver>,
    /// Which of the run's two commands has to have run last; `before` when absent.
    pub treatment: Option<Treatment>,
}

/// A level of the factor [`TREATMENT`](clearstream_schema::record::TREATMENT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// The state that is compared with, in which hosts are left.
    Before,
    /// The state that is measured against it.
    After,
}

impl Treatment {
    /// Both, the level that is compared with first.
    pub const ALL: [Self; 2] = [Self::Before, Self::After];

    /// Its level.
    pub fn level(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// Which gateways of the lab carry the traffic between its networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutesOver {
    /// The first one, by a plain route on each side.
    OneGateway,
    /// All, as the route planner has it.
    AllGateways,
}

/// Where received packets are processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Steering {
    /// Where they arrive.
    Off,
    /// On these cores.
    Cores(CoreList),
}

impl Factor {
    pub(crate) fn of(workload: Workload, name: &str) -> Self {
        match (workload, name) {
            (_, MTU) => Self::Mtu,
            (_, RECEIVE_STEERING) => Self::ReceiveSteering,
            (_, ROUTES_OVER) => Self::RoutesOver,
            (Workload::Flow, "sender-cores") => Self::SenderCores,
            (Workload::Flow, "receiver-cores") => Self::ReceiverCores,
            _ => Self::Option,
        }
    }

    /// Takes the words of [`CORE_WORDS`].
    pub(crate) fn takes_cores(self) -> bool {
        matches!(self, Self::SenderCores | Self::ReceiverCores | Self::ReceiveSteering)
    }

    /// Whether a level can be meant, without knowing the host.
    pub(crate) fn check(self, workload: Workload, name: &str, level: &Value) -> Result<(), String> {
        match self {
            Self::Mtu => mtu(level).map(drop),
            Self::ReceiveSteering => steering(level).map(drop),
            Self::RoutesOver => routes_over(level).map(drop),
            Self::SenderCores | Self::ReceiverCores | Self::Option => try_option(workload, name, level),
        }
    }
}

/// Whether only a lab can set this.
pub(crate) fn is_lab_only(name: &str) -> bool {
    LAB_ONLY.contains(&name)
}

/// Whether an option of the workload takes the value; the message says what to write.
pub(crate) fn try_option(workload: Workload, key: &str, value: &Value) -> Result<(), String> {
    match workload {
        Workload::Flow => with_flow(&FlowConfig::default(), key, value).map(drop),
        Workload::Probe => with_option(&ProbeConfig::default(), key, value).map(drop),
        Workload::Gateways => with_option(&GatewayConfig::default(), key, value).map(drop),
        Workload::Inspect => Err("the inspect workload has no options".to_owned()),
    }
}

/// The flow with one option set.
pub(crate) fn with_flow(config: &FlowConfig, key: &str, value: &Value) -> Result<FlowConfig, String> {
    config.with(key, value.clone()).map_err(|error| option_message(error.source.to_string()))
}

/// A workload's options with one set.
pub(crate) fn with_option<T: Serialize + DeserializeOwned>(
    config: &T,
    key: &str,
    value: &Value,
) -> Result<T, String> {
    let mut document = serde_json::to_value(config).map_err(|error| error.to_string())?;
    document[key] = value.clone();
    serde_json::from_value(document).map_err(|error| option_message(error.to_string()))
}

/// Serde's message with the names that only a lab knows added.
fn option_message(message: String) -> String {
    match unknown_name(&message) {
        Some((written, mut known)) => {
            known.extend(LAB_ONLY);
            let hint = did_you_mean(written, known.iter().copied());
            format!("there is no option `{written}`{hint} (known: {})", known.join(", "))
        }
        None => explain(&message),
    }
}

/// Smallest MTU of IPv4 (RFC 791: 68) to the largest that its length field allows.
pub(crate) fn mtu(level: &Value) -> Result<u32, String> {
    level
        .as_u64()
        .and_then(|bytes| u32::try_from(bytes).ok())
        .filter(|bytes| (68..=65_535).contains(bytes))
        .ok_or_else(|| format!("{level} is no MTU: write bytes from 68 to 65535, as in 9000"))
}

/// A core number, a list of cores, or "off".
pub(crate) fn steering(level: &Value) -> Result<Steering, String> {
    if level == "off" {
        return Ok(Steering::Off);
    }
    serde_json::from_value(level.clone()).map(Steering::Cores).map_err(|_| {
        format!("cannot steer to {level}: write a core number, a list as in \"0-3\", or \"off\"")
    })
}

/// Which gateways carry the traffic.
pub(crate) fn routes_over(level: &Value) -> Result<RoutesOver, String> {
    serde_json::from_value(level.clone())
        .map_err(|_| format!("cannot route over {level}: write \"one-gateway\" or \"all-gateways\""))
}
