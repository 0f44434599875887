//! One test on one side, on its own thread: data threads, samples, end.

use std::{
    net::Shutdown,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use clearstream_control::EventSender;
use clearstream_host::HostRoot;
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::{FlowConfig, FlowInterval, FlowSettings, Protocol, SendMethod},
    notice::Notice,
};
use clearstream_sys::{
    socket as options, tcp_info,
    timestamp::{Family, route_mtu},
};
use socket2::{SockRef, Socket};

use super::{
    cores,
    open::{self, Part},
    sample::{Flow, Sampler},
    settings::{self, notice},
    window::WindowClamp,
};
use crate::{
    calls::{Finished, IntervalPassed, Ready},
    check::DATAGRAM_MAX,
    data::{AfterRead, Burst, Datagrams, Gate, Operation, Outcome, SEGMENTS_MAX, Task, Worker, WorkerReady},
    failure,
    preamble::Secret,
    schedule::Schedule,
};

/// Maximum wait of a receiver for the first data after the start.
const FIRST_DATA_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for threads to end after the test time, before their sockets are closed, and once more after
/// that.
const END_TIMEOUT: Duration = Duration::from_millis(2500);
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
        let (sender, ready) = mpsc::channel();
        let mut flows = Vec::new();
        let mut threads = 0;
        for (number, socket) in (0u32..).zip(sockets) {
            let mut workers = Vec::new();
            for operation in self.operations(&socket, &mut notices)? {
                let worker = Worker::start(
                    self.task(number, operation),
                    Arc::clone(&socket),
                    Arc::clone(&self.gate),
                    sender.clone(),
                );
                match worker {
                    Ok(worker) => workers.push(worker),
                    Err(error) => {
                        self.gate.stop();
                        return Err(Failure::of_system("start a data thread", &error));
                    }
                }
                threads += 1;
            }
            flows.push(Flow { number, socket, workers });
        }
        drop(sender);
        let worker_reports: Vec<WorkerReady> = ready.iter().take(threads).collect();
        if let Some(failed) = self.buffer_failure(&worker_reports) {
            self.gate.stop();
            flows.iter_mut().flat_map(|flow| &mut flow.workers).for_each(Worker::join);
            return Err(failed);
        }
        let ready = self.ready(&flows, worker_reports, notices);
        let stream = self.config.protocol != Protocol::Udp;
        let zerocopy = stream && self.config.method == SendMethod::Zerocopy;
        let sampler = Sampler::prepare(&flows, &HostRoot::live(), stream, zerocopy);
        self.gate.set_ready(threads);
        events.send(&ready);
        let failed = self.gate.wait_start().then(|| self.sample(&mut flows, sampler, events)).flatten();
        self.finish(flows);
        Ok((Vec::new(), failed))
    }

    /// Operations of the threads of one socket; receivers come first, so that they are ready when data
    /// arrives.
    fn operations(&self, socket: &Socket, notices: &mut Vec<Notice>) -> Result<Vec<Operation>, Failure> {
        let Part { sends, receives } = self.part;
        let mut operations = Vec::new();
        if self.config.protocol == Protocol::Udp {
            let datagrams = self.datagrams(socket, notices);
            operations.extend(receives.then_some(Operation::ReceiveDatagrams(datagrams)));
            operations.extend(sends.then_some(Operation::SendDatagrams(datagrams)));
            return Ok(operations);
        }
        if receives && let Some(bytes) = settings::low_water(&self.config, socket) {
            options::set_receive_low_water(socket, u32::try_from(bytes).unwrap_or(u32::MAX))
                .map_err(|error| Failure::of_system("set SO_RCVLOWAT", &error))?;
        }
        operations.extend(receives.then_some(Operation::Receive(self.config.receive)));
        operations.extend(sends.then_some(Operation::Send(self.config.method)));
        Ok(operations)
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

    fn task(&self, flow: u32, operation: Operation) -> Task {
        let config = &self.config;
        let sends = matches!(operation, Operation::Send(_) | Operation::SendDatagrams(_));
        let list = if sends { &config.sender_cores } else { &config.receiver_cores };
        let bursts = flow >= config.flows.saturating_sub(config.burst_flows);
        Task {
            flow,
            operation,
            transfer: usize::try_from(config.transfer().0).unwrap_or(usize::MAX),
            limit: config.bytes.map(|bytes| bytes.0),
            core: cores::of_flow(list.as_ref(), flow),
            node: config.memory_node,
            after_read: AfterRead {
                work: config.receiver_work.map(|time| time.to_std()),
                pause: config.receiver_pause.map(|time| time.to_std()),
            },
            burst: bursts.then_some(Burst { on: config.burst_on.to_std(), off: config.burst_off.to_std() }),
        }
    }

    fn buffer_failure(&self, worker_reports: &[WorkerReady]) -> Option<Failure> {
        let error = worker_reports.iter().find_map(|worker| worker.buffer.as_ref().err())?;
        Some(match self.config.memory_node {
            Some(node) => failure(
                FailureKind::Invalid,
                format!(
                    "memory-node: no memory from node {node} on this host ({error}): `numactl --hardware` lists the nodes"
                ),
            ),
            None => {
                Failure::of_system(&format!("get memory for a transfer of {}", self.config.transfer()), error)
            }
        })
    }

    fn ready(&self, flows: &[Flow], worker_reports: Vec<WorkerReady>, mut notices: Vec<Notice>) -> Ready {
        let root = HostRoot::live();
        let mut by_flow = Vec::new();
        by_flow.resize_with(flows.len(), Vec::new);
        notices.extend(settings::failed_pins(&worker_reports));
        for worker in worker_reports {
            if let Some(place) = by_flow.get_mut(worker.flow as usize) {
                place.push(worker);
            }
        }
        let settings = FlowSettings {
            flows: flows
                .iter()
                .zip(&by_flow)
                .map(|(flow, workers)| settings::of_socket(&self.config, self.part, &flow.socket, workers))
                .collect(),
            boot_id: root.read("proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned()),
        };
        if let Some(first) = settings.flows.first() {
            notices.extend(settings::capped_windows(&self.config, &root, first));
            notices.extend(settings::refused_congestion_control(&self.config, &root, first));
        }
        Ready { test: self.number, settings, notices }
    }

    /// Samples until the test time is over, the data is sent, or the peer is gone.
    fn sample(&self, flows: &mut [Flow], mut sampler: Sampler, events: &EventSender) -> Option<Failure> {
        let gate = &*self.gate;
        let schedule = Schedule::new(&self.config);
        let window = WindowClamp::of(&self.config, self.part.receives);
        sampler.started();
        let mut ended_at = None;
        if let Some(begun) = gate.wait_begun(Instant::now() + FIRST_DATA_TIMEOUT) {
            sampler.begin(begun);
            for index in 0.. {
                let Some(end) = schedule.end_of(index) else { break };
                let over = window.wait_until(gate, begun + end, flows);
                let interval = sampler.interval(index, flows);
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
        let stopped = gate.is_stopped();
        self.end_threads(flows);
        let outcomes = gate.take_outcomes();
        if stopped {
            return None;
        }
        let Some(ended_at) = ended_at else {
            return Some(first_failure(&outcomes).unwrap_or_else(|| {
                let message =
                    format!("no data arrived within {} s after the start", FIRST_DATA_TIMEOUT.as_secs());
                failure(FailureKind::Connection, message)
            }));
        };
        first_failure(&outcomes).or_else(|| early_end(&schedule, ended_at))
    }

    fn end_threads(&self, flows: &mut [Flow]) {
        let gate = &*self.gate;
        gate.expire();
        if gate.is_stopped() {
            // The remaining data is not needed.
            close(flows);
        }
        if !gate.wait_ended(Instant::now() + END_TIMEOUT) {
            gate.stop();
            close(flows);
            gate.wait_ended(Instant::now() + END_TIMEOUT);
        }
        if gate.all_ended() {
            flows.iter_mut().flat_map(|flow| &mut flow.workers).for_each(Worker::join);
        }
    }

    /// Closes the sockets. A fixed pair of ports must be reusable by the next test at once: the server resets
    /// finished connections, so that no end stays in `TIME_WAIT`. All data and the end of the stream are
    /// acknowledged by then.
    fn finish(&self, flows: Vec<Flow>) {
        if self.server && self.config.source_port_of(0).is_some() && self.config.protocol != Protocol::Udp {
            let until = Instant::now() + END_TIMEOUT;
            for flow in &flows {
                while tcp_info::read(&flow.socket)
                    .is_ok_and(|info| info.unacked_count > 0 || info.not_sent_bytes.unwrap_or(0) > 0)
                    && Instant::now() < until
                {
                    thread::sleep(Duration::from_millis(1));
                }
                // Without it the port is only held for a minute.
                drop(SockRef::from(&*flow.socket).set_linger(Some(Duration::ZERO)));
            }
        }
        drop(flows);
    }
}

fn close(flows: &[Flow]) {
    for flow in flows {
        // Fails when the connection is already closed.
        drop(flow.socket.shutdown(Shutdown::Both));
    }
}

pub(super) fn first_failure(outcomes: &[(u32, Outcome)]) -> Option<Failure> {
    outcomes.iter().find_map(|(flow, outcome)| match outcome {
        Outcome::Failed(error) => Some(failure(
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
        failure(
            FailureKind::Connection,
            format!("the peer closed the data connections after {after:.2} of {of:.2} s"),
        )
    })
}
