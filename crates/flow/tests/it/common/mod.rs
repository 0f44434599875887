//! Two agents in this process, and tests between them over loopback.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::atomic::AtomicBool,
};

use clearstream_control::{Peer, Services, memory_pair};
use clearstream_flow::{FlowAgent, FlowError, FlowEvent, Open, run};
use clearstream_schema::{
    TimeSpan,
    flow::{FlowConfig, FlowSummary, Interval},
};

/// Services of an agent with flows only.
pub(crate) fn services() -> Services {
    Services::new().with(FlowAgent::new())
}

/// Two agents.
pub(crate) fn peers() -> (Peer, Peer) {
    let peer = || memory_pair(services()).unwrap();
    (peer(), peer())
}

/// A short test without warm-up.
pub(crate) fn short() -> FlowConfig {
    FlowConfig {
        duration: TimeSpan::from_millis(300),
        warm_up: TimeSpan(0),
        interval: TimeSpan::from_millis(100),
        ..FlowConfig::default()
    }
}

/// Runs a test between two new agents.
pub(crate) fn measure(config: &FlowConfig) -> Result<(FlowSummary, Vec<Interval>), FlowError> {
    let (mut client, mut server) = peers();
    measure_with(&mut client, &mut server, config, |_| {})
}

/// As [`measure`] between given agents; `each` receives every event.
pub(crate) fn measure_with(
    client: &mut Peer,
    server: &mut Peer,
    config: &FlowConfig,
    mut each: impl FnMut(&FlowEvent),
) -> Result<(FlowSummary, Vec<Interval>), FlowError> {
    let mut intervals = Vec::new();
    let stop = AtomicBool::new(false);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let summary = run(client, server, address, config, Open::default(), &stop, &mut |event| {
        each(&event);
        if let FlowEvent::Interval(interval) = event {
            intervals.push(interval);
        }
    })?;
    Ok((summary, intervals))
}
