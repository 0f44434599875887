//! Both sides between two agents: how each connects ([`connect`](super::connect)), and what it does then.

use std::net::{IpAddr, SocketAddr};

use crate::overlap::{OverlapConfig, OverlapPoint, OverlapSideSettings};
use clearstream_schema::control::{Cookie, Failure, FailureKind};
use clearstream_workload::{
    call_names,
    two_sided::{CallNames, Hold, Side, TwoSided},
};

use super::{
    check::check,
    connect::{Connections, Waiting, connect},
    engine::{self, EngineError, Session},
};
use crate::{ProcessCosts, connection::Secret};

/// The measurement between two agents.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sides;

impl TwoSided for Sides {
    type Config = OverlapConfig;
    type Point = OverlapPoint;
    type Report = OverlapSideSettings;
    type Waiting = Waiting;
    type Connected = Connections;

    const NAMES: CallNames = call_names!("overlap");

    fn check(config: &OverlapConfig) -> Result<(), Failure> {
        check(config)
    }

    fn cores(config: &OverlapConfig) -> [Option<u32>; 2] {
        [config.client_core, config.server_core]
    }

    fn listen(
        config: &OverlapConfig,
        address: Option<IpAddr>,
        cookie: &Cookie,
    ) -> Result<(Waiting, Vec<u16>), Failure> {
        let waiting = Waiting::open(config, address, Secret::parse(cookie)?)?;
        let ports = waiting.ports();
        Ok((waiting, ports))
    }

    fn accept(waiting: Waiting, config: &OverlapConfig, hold: &Hold) -> Result<Option<Connections>, Failure> {
        waiting.accept(config, hold)
    }

    fn connect(
        config: &OverlapConfig,
        server: &[SocketAddr],
        cookie: &Cookie,
        hold: &Hold,
    ) -> Result<Connections, Failure> {
        connect(config, server, Secret::parse(cookie)?, hold)
    }

    fn serve(
        connected: Connections,
        config: &OverlapConfig,
        hold: &Hold,
    ) -> Result<Side<OverlapSideSettings>, Failure> {
        Ok(transfer(connected, config, config.server_core, hold, engine::serve))
    }

    fn measure(
        connected: Connections,
        config: &OverlapConfig,
        hold: &Hold,
        on_point: &mut dyn FnMut(OverlapPoint),
    ) -> Result<Side<OverlapSideSettings>, Failure> {
        let work = |session: &mut Session<'_>| engine::measure(session, on_point);
        Ok(transfer(connected, config, config.client_core, hold, work))
    }
}

/// Transfers until the end of the measurement.
fn transfer(
    connections: Connections,
    config: &OverlapConfig,
    core: Option<u32>,
    hold: &Hold,
    work: impl FnOnce(&mut Session<'_>) -> Result<(), EngineError>,
) -> Side<OverlapSideSettings> {
    let Connections { control, data, settings } = connections;
    let (control, costs) = (Box::new(control), ProcessCosts::of_processors());
    let mut session = Session { control, data, costs, stop: hold.flag(), config };
    let result = work(&mut session);
    drop(session);
    let mut side = Side { report: OverlapSideSettings { core, ..settings }, ..Side::default() };
    if let Err(error) = result {
        side.peer_closed = error.is_closed_by_peer();
        side.failure = Some(Failure::new(FailureKind::Connection, error.to_string()));
    }
    side
}
