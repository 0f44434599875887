//! Two ranks that agents run, joined by TCP: rank 1 on the server, rank 0 on the client.

use std::{
    net::{IpAddr, SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use clearstream_messages::connection::{self, Listener, Secret, SocketOptions};
use clearstream_ranks::{RankError, TcpPair, World};
use clearstream_schema::{
    TimeSpan,
    control::{Cookie, Failure},
    failure::Classified,
};
use clearstream_sys::process::host_name;
use clearstream_workload::{
    HostSet, TrialError, call_names,
    two_sided::{self, CallNames, Hold, Side, Started, TwoSided},
};
use serde::{Deserialize, Serialize};
use socket2::Socket;

use crate::{
    ExploreConfig, ExploreError, Program,
    document::{ExplorationConfig, Explored},
    explore,
    workload::program,
};

/// Memory of the states of a rank.
const MEMORY_BYTES: usize = 1 << 30;
/// Maximum size of a message, which both ranks hold.
const MESSAGE_MAX_BYTES: u64 = 64 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What two ranks explore.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RanksConfig {
    /// The model, and how.
    pub exploration: ExplorationConfig,
    /// Explores repeatedly until it is stopped, with this pause in between; once when absent.
    #[serde(default)]
    pub pause: Option<TimeSpan>,
}

/// The exploration of two agents. It tells nothing until its end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sides;

impl TwoSided for Sides {
    type Config = RanksConfig;
    type Point = ();
    type Report = Explored;
    type Waiting = Listener;
    type Connected = Socket;

    const NAMES: CallNames = call_names!("explore");
    /// In which ranks agree on the end.
    const END_WITHIN: Duration = Duration::from_secs(5);

    fn check(config: &RanksConfig) -> Result<(), Failure> {
        program(&config.exploration).map(drop)
    }

    fn cores(_: &RanksConfig) -> [Option<u32>; 2] {
        [None, None]
    }

    fn listen(
        _: &RanksConfig,
        address: Option<IpAddr>,
        cookie: &Cookie,
    ) -> Result<(Listener, Vec<u16>), Failure> {
        let listener = Listener::open(&SocketOptions::default(), address, Secret::parse(cookie)?)?;
        let port = listener.address().port();
        Ok((listener, vec![port]))
    }

    fn accept(mut waiting: Listener, _: &RanksConfig, hold: &Hold) -> Result<Option<Socket>, Failure> {
        waiting.accept(|| hold.is_stopped())
    }

    fn connect(_: &RanksConfig, server: &[SocketAddr], cookie: &Cookie, _: &Hold) -> Result<Socket, Failure> {
        connection::connect(&SocketOptions::default(), server[0], Secret::parse(cookie)?)
    }

    fn serve(socket: Socket, config: &RanksConfig, hold: &Hold) -> Result<Side<Explored>, Failure> {
        rank(1, socket, &config.exploration, None, hold)
    }

    fn measure(
        socket: Socket,
        config: &RanksConfig,
        hold: &Hold,
        _: &mut dyn FnMut(()),
    ) -> Result<Side<Explored>, Failure> {
        rank(0, socket, &config.exploration, config.pause, hold)
    }
}

/// Ends both ranks, rank 0 first, which tells the other; what they did.
///
/// # Errors
/// A rank failed, or an agent is lost.
pub(crate) fn end(started: Started<Sides>, hosts: &mut HostSet<'_>) -> Result<Explored, TrialError> {
    let [client, server] = started.end(hosts)?;
    let (client, server) = (client?, server?);
    match two_sided::cause(hosts, [&client, &server])? {
        Some((error, _)) => Err(error),
        None => Ok(client.report),
    }
}

/// Joins the other rank over a connected socket, and explores.
fn rank(
    number: usize,
    socket: Socket,
    config: &ExplorationConfig,
    pause: Option<TimeSpan>,
    hold: &Hold,
) -> Result<Side<Explored>, Failure> {
    let program = program(config)?;
    hold.hold(&socket)?;
    let joined = TcpPair::join(number, &host_name(), TcpStream::from(socket));
    let mut world = joined.map_err(|error| Failure::of_system("join the other rank", &error))?;
    let limits = ExploreConfig {
        message_bytes: config.message_size.0.clamp(1, MESSAGE_MAX_BYTES) as usize,
        memory_bytes: MEMORY_BYTES,
        cycles: config.cycles,
    };
    let mut side = Side::default();
    let ended = repeat(&mut world, &program, &limits, pause, hold.flag(), &mut side.report);
    if let Err(error) = ended {
        side.peer_closed = matches!(error, ExploreError::Ranks(RankError::Lost { .. }));
        side.failure = Some(error.to_failure());
    }
    Ok(side)
}

/// Explores as often as rank 0 says.
fn repeat(
    world: &mut dyn World,
    program: &Program,
    limits: &ExploreConfig,
    pause: Option<TimeSpan>,
    stop: &AtomicBool,
    explored: &mut Explored,
) -> Result<(), ExploreError> {
    loop {
        if let Some(found) = explore(world, program, limits, stop, &mut |_| ())? {
            explored.add(found);
        }
        let is_last = match pause {
            Some(pause) => paused(pause, stop),
            None => true,
        };
        // What rank 1 says of it is not asked.
        if world.broadcast(vec![u8::from(is_last)])? != [0] {
            return Ok(());
        }
    }
}

/// Waits; true when it was stopped meanwhile.
fn paused(pause: TimeSpan, stopped: &AtomicBool) -> bool {
    let until = Instant::now() + pause.to_std();
    while Instant::now() < until && !stopped.load(Relaxed) {
        thread::sleep(POLL_INTERVAL);
    }
    stopped.load(Relaxed)
}
