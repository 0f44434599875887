//! Both sides over TCP: how each connects, and what it does then.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use crate::message::{MessageConfig, MessageMethod, MessagePoint, MessageSideSettings};
use clearstream_schema::control::{Cookie, Failure, FailureKind};
use clearstream_workload::{
    call_names,
    two_sided::{CallNames, Hold, Side, TwoSided},
};
use socket2::Socket;

use super::{
    check::check,
    engine::{self, EngineError, Link, capacity},
};
use crate::connection::{self, Listener, Secret, SocketOptions};

/// The measurement between two agents.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sides;

impl TwoSided for Sides {
    type Config = MessageConfig;
    type Point = MessagePoint;
    type Report = MessageSideSettings;
    type Waiting = Listener;
    type Connected = Socket;

    const NAMES: CallNames = call_names!("message");

    fn check(config: &MessageConfig) -> Result<(), Failure> {
        check(config)
    }

    fn cores(config: &MessageConfig) -> [Option<u32>; 2] {
        [config.client_core, config.server_core]
    }

    fn listen(
        config: &MessageConfig,
        address: Option<IpAddr>,
        cookie: &Cookie,
    ) -> Result<(Listener, Vec<u16>), Failure> {
        let listener = Listener::open(&SocketOptions::from(config), address, Secret::parse(cookie)?)?;
        let port = listener.address().port();
        Ok((listener, vec![port]))
    }

    fn accept(mut waiting: Listener, _: &MessageConfig, hold: &Hold) -> Result<Option<Socket>, Failure> {
        waiting.accept(|| hold.is_stopped())
    }

    fn connect(
        config: &MessageConfig,
        server: &[SocketAddr],
        cookie: &Cookie,
        _: &Hold,
    ) -> Result<Socket, Failure> {
        connection::connect(&SocketOptions::from(config), server[0], Secret::parse(cookie)?)
    }

    fn serve(
        socket: Socket,
        config: &MessageConfig,
        hold: &Hold,
    ) -> Result<Side<MessageSideSettings>, Failure> {
        transfer(socket, config, config.server_core, hold, |link| engine::serve(link, config))
    }

    fn measure(
        socket: Socket,
        config: &MessageConfig,
        hold: &Hold,
        on_point: &mut dyn FnMut(MessagePoint),
    ) -> Result<Side<MessageSideSettings>, Failure> {
        transfer(socket, config, config.client_core, hold, |link| engine::measure(link, config, on_point))
    }
}

/// Transfers over a connected socket until the end of the measurement.
fn transfer(
    socket: Socket,
    config: &MessageConfig,
    core: Option<u32>,
    hold: &Hold,
    work: impl FnOnce(&mut Link) -> Result<(), EngineError>,
) -> Result<Side<MessageSideSettings>, Failure> {
    let mut settings = connection::settle(&socket, config.nagle)?;
    settings.core = core;
    let mut side =
        Side { notices: connection::capped(config, &settings), report: settings, ..Side::default() };
    hold.hold(&socket)?;
    let result = match Link::new(socket, config.method, capacity(config)) {
        Ok(mut link) => work(&mut link),
        Err(error) => {
            side.failure = Some(no_link(config.method, &error));
            return Ok(side);
        }
    };
    if let Err(error) = result {
        side.peer_closed = error.is_closed_by_peer();
        side.failure = Some(Failure::new(kind(&error), error.to_string()));
    }
    Ok(side)
}

fn no_link(method: MessageMethod, error: &io::Error) -> Failure {
    match method {
        MessageMethod::IoUring => Failure::new(
            FailureKind::Unsupported,
            format!("io_uring is not available on this host ({error}): choose another method"),
        ),
        _ => Failure::of_system("get memory for the messages", error),
    }
}

pub(super) fn kind(error: &EngineError) -> FailureKind {
    match error {
        EngineError::Connection(_)
        | EngineError::Library(_)
        | EngineError::Damaged { .. }
        | EngineError::Miscounted { .. } => FailureKind::Connection,
        EngineError::TooLarge(_) => FailureKind::Invalid,
    }
}
