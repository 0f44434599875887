//! One test on one side, on its own thread: data threads, samples, end.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clearstream_control::EventSender;
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::{FlowConfig, FlowInterval, Protocol},
    notice::Notice,
};
use clearstream_sys::{
    socket as options, tcp_info,
    timestamp::{Family, route_mtu},
};
use socket2::{SockRef, Socket};

use super::{
    adapter,
    engine::{END_TIMEOUT, Engine},
    open::{self, Part},
    settings::notice,
};
use crate::{
    adapt::Open,
    calls::{Finished, IntervalPassed, Ready},
    check::DATAGRAM_MAX,
    data::{Datagrams, Gate, Operation, Outcome, SEGMENTS_MAX},
    preamble::Secret,
    schedule::Schedule,
};

/// Maximum wait of a receiver for the first data after the start.
const FIRST_DATA_TIMEOUT: Duration = Duration::from_secs(10);
/// Tolerated early end of a stream: the two sides' clocks start one path delay apart.
const EARLY_END: Duration = Duration::from_millis(250);
/// Idle time after which a UDP sender is considered gone.
const UDP_IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// State owned by the test's thread.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) number: u64,
    pub(super) config: FlowConfig,
    pub(super) part: Part,
    pub(super) server: bool,
    pub(super) secret: Secret,
    pub(super) gate: Arc<Gate>,
    pub(super) open: Open,
    pub(super) adapter: adapter::Shared,
}

impl Test {
    /// Runs from the connected sockets to the end and reports the result.
    pub(super) fn run(
        self,
        sockets: impl FnOnce(&Gate) -> Result<Vec<Arc<Socket>>, Failure>,
        events: &EventSender,
    ) {
        let ended = sockets(&self.gate).and_then(|sockets| self.flow(sockets, events));
        let (notices, failed) = match ended {
            Ok((notices, failed)) => (notices, failed),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        self.gate.set_over(failed.clone());
        events.send(&Finished { test: self.number, notices, failure: failed });
    }

    fn flow(
        &self,
        sockets: Vec<Arc<Socket>>,
        events: &EventSender,
    ) -> Result<(Vec<Notice>, Option<Failure>), Failure> {
        for socket in &sockets {
            open::choose_congestion_control(socket, &self.config, self.part)?;
        }
        let mut notices = Vec::new();
        let mut engine =
            Engine::of(&self.config, Arc::clone(&self.gate), self.open, Arc::clone(&self.adapter));
        for socket in sockets {
            let operations = self.operations(&socket, &mut notices);
            engine.add(socket, self.part, &operations)?;
        }
        let (settings, fallen_short) = engine.ready()?;
        notices.extend(fallen_short);
        events.send(&Ready { test: self.number, settings, notices });
        let failed = self.gate.wait_start().then(|| self.sample(&mut engine, events)).flatten();
        self.finish(engine);
        Ok((Vec::new(), failed))
    }

    /// Operations of the threads of one socket; receivers come first, so that they are ready when data
    /// arrives.
    fn operations(&self, socket: &Socket, notices: &mut Vec<Notice>) -> Vec<Operation> {
        let Part { sends, receives } = self.part;
        let (send, receive) = if self.config.protocol == Protocol::Udp {
            let datagrams = self.datagrams(socket, notices);
            (Operation::SendDatagrams(datagrams), Operation::ReceiveDatagrams(datagrams))
        } else {
            (Operation::Send(self.config.method), Operation::Receive(self.config.receive))
        };
        receives.then_some(receive).into_iter().chain(sends.then_some(send)).collect()
    }

    /// Datagram and batch sizes, as far as the kernel supports offload.
    fn datagrams(&self, socket: &Socket, notices: &mut Vec<Notice>) -> Datagrams {
        let v6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
        let (family, headers) = if v6 { (Family::V6, 48) } else { (Family::V4, 28) };
        let from_path =
            || route_mtu(socket, family).map_or(1472, |mtu| u64::from(mtu).saturating_sub(headers));
        let size = self.config.datagram.map_or_else(from_path, |size| size.0).min(DATAGRAM_MAX);
        let size = usize::try_from(size).unwrap_or(1472);
        let together = (DATAGRAM_MAX as usize / size).clamp(1, SEGMENTS_MAX);
        let mut lost = |id: &str, what: &str, error: std::io::Error| {
            let known = notices.iter().any(|notice| notice.id == id);
            if !known {
                notices.push(notice(
                    id,
                    format!("{what} is not available ({error}): one system call per datagram"),
                ));
            }
        };
        let mut batch = size;
        if self.part.sends && together > 1 {
            match u16::try_from(size)
                .map_err(std::io::Error::other)
                .and_then(|size| options::set_udp_segment(socket, size))
            {
                Ok(()) => batch = size * together,
                Err(error) => lost("gso-lost", "UDP segmentation offload (UDP_SEGMENT, Linux 4.18)", error),
            }
        }
        if self.part.receives
            && let Err(error) = options::enable_udp_gro(socket)
        {
            lost("gro-lost", "UDP receive offload (UDP_GRO, Linux 5.0)", error);
        }
        Datagrams {
            size,
            batch,
            tag: self.secret.tag(),
            rate_bps: self.config.pacing.map(|rate| rate.0),
            timeout: UDP_IDLE_TIMEOUT + self.config.burst_off.to_std(),
        }
    }

    /// Samples until the test time is over, the data is sent, or the peer is gone.
    fn sample(&self, engine: &mut Engine, events: &EventSender) -> Option<Failure> {
        let schedule = Schedule::new(&self.config);
        engine.started();
        let mut ended_at = None;
        if let Some(begun) = engine.begin(Instant::now() + FIRST_DATA_TIMEOUT) {
            engine.adapt(self.number, events, begun);
            for index in 0.. {
                let Some(end) = schedule.end_of(index) else { break };
                let over = engine.wait_until(begun + end);
                let Some(interval) = engine.interval(index) else { break };
                if let Some(settings) = engine.adapted_settings() {
                    events.send(&Ready { test: self.number, settings, notices: Vec::new() });
                }
                let sum = |bytes: fn(&FlowInterval) -> u64| interval.flows.iter().map(bytes).sum();
                events.transferred("flow", sum(|flow| flow.sent_bytes), sum(|flow| flow.received_bytes));
                let empty = interval.flows.iter().all(|flow| flow.sent_bytes + flow.received_bytes == 0);
                // An end right after the end of an interval adds no interval.
                if !(over && empty && interval.end_ns - interval.start_ns < 1_000_000) {
                    events.send(&IntervalPassed { test: self.number, interval });
                }
                if over {
                    break;
                }
            }
            ended_at = Some(begun.elapsed());
        }
        let stopped = self.gate.is_stopped();
        engine.end();
        let outcomes = self.gate.take_outcomes();
        if stopped {
            return None;
        }
        let Some(ended_at) = ended_at else {
            return Some(first_failure(&outcomes).unwrap_or_else(|| {
                let message =
                    format!("no data arrived within {} s after the start", FIRST_DATA_TIMEOUT.as_secs());
                Failure::new(FailureKind::Connection, message)
            }));
        };
        first_failure(&outcomes).or_else(|| early_end(&schedule, ended_at))
    }

    /// Closes the sockets. A fixed pair of ports must be reusable by the next test at once: the server resets
    /// finished connections, so that no end stays in `TIME_WAIT`. All data and the end of the stream are
    /// acknowledged by then.
    fn finish(&self, engine: Engine) {
        if self.server && self.config.source_port_of(0).is_some() && self.config.protocol != Protocol::Udp {
            let until = Instant::now() + END_TIMEOUT;
            for socket in engine.all_sockets() {
                while tcp_info::read(socket)
                    .is_ok_and(|info| info.unacked_count > 0 || info.not_sent_bytes.unwrap_or(0) > 0)
                    && Instant::now() < until
                {
                    thread::sleep(Duration::from_millis(1));
                }
                // Without it the port is only held for a minute.
                drop(SockRef::from(socket).set_linger(Some(Duration::ZERO)));
            }
        }
        drop(engine);
    }
}

pub(super) fn first_failure(outcomes: &[(u32, Outcome)]) -> Option<Failure> {
    outcomes.iter().find_map(|(flow, outcome)| match outcome {
        Outcome::Failed(error) => Some(Failure::new(
            FailureKind::Connection,
            format!("flow {flow}: the data connection failed: {error}"),
        )),
        Outcome::Stopped | Outcome::Sent | Outcome::EndOfStream => None,
    })
}

/// All threads have ended: an error when the test time is not over.
fn early_end(schedule: &Schedule, ended_at: Duration) -> Option<Failure> {
    let end = schedule.end()?;
    (ended_at + EARLY_END < end).then(|| {
        let (after, of) = (ended_at.as_secs_f64(), end.as_secs_f64());
        Failure::new(
            FailureKind::Connection,
            format!("the peer closed the data connections after {after:.2} of {of:.2} s"),
        )
    })
}
