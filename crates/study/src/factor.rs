//! Factors and the levels they take.

use std::collections::BTreeMap;

use clearstream_schema::CoreList;
use clearstream_workload::{AnyWorkload, Registry};
use serde_json::Value;

/// Names for core levels that are resolved on the host.
pub(crate) const CORE_SETS: [&str; 2] = [EVERY_CORE, REPRESENTATIVE_CORES];
pub(crate) const EVERY_CORE: &str = "every-core";
pub(crate) const REPRESENTATIVE_CORES: &str = "representative-cores";

const MTU: &str = "mtu";
pub(crate) const RECEIVE_STEERING: &str = "receive-steering";
/// Factors that every lab has; others are registered.
const LAB_ONLY: [&str; 2] = [MTU, RECEIVE_STEERING];

/// Target of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    /// An option of the workload that places threads on cores.
    Cores {
        /// The threads receive.
        receives: bool,
    },
    /// MTU of the lab's links.
    Mtu,
    /// Cores that received packets are steered to, in the lab.
    ReceiveSteering,
    /// A state of the lab, registered by a workload.
    Registered,
    /// Any other option of the workload; the name is its key.
    Option,
}

/// The settings of a cell that are no options of the workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Environment {
    /// MTU of the lab's links; the lab file's when absent.
    pub mtu_bytes: Option<u32>,
    /// Steering of received packets on the receiving host; the lab file's when absent.
    pub receive_steering: Option<Steering>,
    /// Lab interface of the listening host to measure to; its first one when absent.
    pub interface: Option<String>,
    /// Levels of registered factors, by name.
    pub registered: BTreeMap<String, Value>,
    /// The run's command that must have run last; `before` when absent.
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

/// Cores that process received packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Steering {
    /// On the core that received them.
    Off,
    /// On these cores.
    Cores(CoreList),
}

/// A workload and the program's context for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) workload: &'a dyn AnyWorkload,
}

impl Known<'_> {
    /// Factor of a name.
    pub(crate) fn factor(self, name: &str) -> Factor {
        match name {
            MTU => Factor::Mtu,
            RECEIVE_STEERING => Factor::ReceiveSteering,
            _ if self.registry.factor(name).is_some() => Factor::Registered,
            _ => match self.workload.placement(&self.workload.defaults(), name) {
                Some(placement) => Factor::Cores { receives: placement.receives },
                None => Factor::Option,
            },
        }
    }

    /// Whether there is a factor of this name.
    pub(crate) fn has(self, name: &str) -> bool {
        self.factor(name) != Factor::Option || self.workload.has(name)
    }

    /// Whether only a lab can set this.
    pub(crate) fn is_lab_only(self, name: &str) -> bool {
        matches!(self.factor(name), Factor::Mtu | Factor::ReceiveSteering | Factor::Registered)
    }

    /// Whether a level can be valid, without knowing the host.
    pub(crate) fn check_level(self, name: &str, level: &Value) -> Result<(), String> {
        match self.factor(name) {
            Factor::Mtu => mtu(level).map(drop),
            Factor::ReceiveSteering => steering(level).map(drop),
            Factor::Registered => self.registry.factor(name).map_or(Ok(()), |factor| factor.check(level)),
            Factor::Cores { .. } | Factor::Option => self.try_option(name, level),
        }
    }

    /// Whether an option of the workload takes the value; the message names a valid form.
    pub(crate) fn try_option(self, option: &str, value: &Value) -> Result<(), String> {
        self.with(&self.workload.defaults(), option, value).map(drop)
    }

    /// A configuration of the workload with one option set.
    pub(crate) fn with(self, config: &Value, option: &str, value: &Value) -> Result<Value, String> {
        let beside: Vec<&str> = LAB_ONLY.into_iter().chain(self.registry.factor_names()).collect();
        self.workload.with(config, option, value, &beside)
    }
}

impl Factor {
    /// Whether it takes the names of [`CORE_SETS`].
    pub(crate) fn takes_cores(self) -> bool {
        matches!(self, Self::Cores { .. } | Self::ReceiveSteering)
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
    clearstream_schema::json::from_value(level.clone()).map(Steering::Cores).map_err(|_| {
        format!("cannot steer to {level}: write a core number, a list as in \"0-3\", or \"off\"")
    })
}
