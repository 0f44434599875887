//! The sampler: reads counters every interval, outside the data threads.

use std::{mem, sync::Arc, time::Instant};

use clearstream_host::{
    HostRoot, counters::CounterReader, driver_counters::DriverCounterReader, processes::ProcessScanner,
    thread, throttling::ThrottlingReader,
};
use clearstream_schema::{
    counters::{CpuThrottling, HostCounters},
    flow::{FlowInterval, SideInterval, ThreadTime, ZerocopyCount},
};
use clearstream_sys::{socket as options, tcp_info};
use socket2::Socket;

use crate::data::{Reading, Worker};

/// Maximum threads with individual CPU times: with more the reads would cost more than they are worth.
const TIMED_THREADS_MAX: usize = 64;

/// One flow of this side.
#[derive(Debug)]
pub(super) struct Flow {
    /// Its number.
    pub(super) number: u32,
    /// Its data socket.
    pub(super) socket: Arc<Socket>,
    /// Its threads.
    pub(super) workers: Vec<Worker>,
}

/// State of the sampler between two intervals.
#[derive(Debug)]
pub(super) struct Sampler {
    stream: bool,
    zerocopy: bool,
    root: HostRoot,
    counters: CounterReader,
    processes: ProcessScanner,
    drivers: DriverCounterReader,
    throttling: ThrottlingReader,
    throttled: Option<CpuThrottling>,
    begun: Instant,
    last: Snapshot,
}

#[derive(Debug)]
struct Snapshot {
    at: Instant,
    host: HostCounters,
    flows: Vec<(Reading, Reading)>,
    times: Vec<[Option<ThreadTime>; 2]>,
}

impl Snapshot {
    fn take(at: Instant, flows: &[Flow], counters: &mut CounterReader, root: &HostRoot) -> Self {
        let timed = flows.iter().map(|flow| flow.workers.len()).sum::<usize>() <= TIMED_THREADS_MAX;
        let time = |flow: &Flow, sends: bool| {
            let worker = flow.workers.iter().find(|worker| timed && worker.sends == sends)?;
            thread::time(root, worker.counters.thread())
        };
        let times = flows.iter().map(|flow| [time(flow, true), time(flow, false)]).collect();
        let read = |flow: &Flow, sends: bool| {
            flow.workers
                .iter()
                .find(|worker| worker.sends == sends)
                .map_or_else(Reading::default, |worker| worker.counters.read())
        };
        let readings = flows.iter().map(|flow| (read(flow, true), read(flow, false))).collect();
        Self { at, flows: readings, times, host: counters.read() }
    }
}

impl Sampler {
    /// Takes the first snapshot, while the threads wait for the start.
    pub(super) fn prepare(flows: &[Flow], root: &HostRoot, stream: bool, zerocopy: bool) -> Self {
        let mut counters = CounterReader::open(root);
        let now = Instant::now();
        let last = Snapshot::take(now, flows, &mut counters, root);
        let throttling = ThrottlingReader::open(root);
        Self {
            stream,
            zerocopy,
            root: root.clone(),
            counters,
            processes: ProcessScanner::new(root),
            drivers: DriverCounterReader::open(root),
            throttled: throttling.read(),
            throttling,
            begun: now,
            last,
        }
    }

    /// Data may flow from now on: what the host counted before does not belong to the test.
    pub(super) fn started(&mut self) {
        self.last.host = self.counters.read();
        self.throttled = self.throttling.read();
        self.processes.restart();
        self.drivers.restart(&self.last.host.interfaces);
    }

    /// Records the first data, transferred at `begun`.
    pub(super) fn begin(&mut self, begun: Instant) {
        self.begun = begun;
        self.last.at = begun;
    }

    /// Returns the counts since the last call.
    pub(super) fn interval(&mut self, index: u32, flows: &[Flow]) -> SideInterval {
        let mut now = Snapshot::take(Instant::now(), flows, &mut self.counters, &self.root);
        let times = spent(&now.times, &self.last.times);
        let since = now.host.since(&self.last.host);
        let nanos = |at: Instant| {
            u64::try_from(at.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX)
        };
        let pairs = || {
            now.flows.iter().zip(&self.last.flows).flat_map(|(now, last)| [(now.0, last.0), (now.1, last.1)])
        };
        let interval = SideInterval {
            index,
            start_ns: nanos(self.last.at),
            end_ns: nanos(now.at),
            flows: flows
                .iter()
                .zip(now.flows.iter().zip(&self.last.flows).zip(times))
                .map(|(flow, ((now, last), times))| self.flow(flow, *now, *last, times))
                .collect(),
            cores: since.cores,
            interfaces: since.interfaces,
            driver_counters: self.drivers.poll().unwrap_or_default(),
            thread_cpu_ns: pairs().map(|(now, last)| now.cpu_ns.saturating_sub(last.cpu_ns)).sum(),
            cycle_count: pairs()
                .filter_map(|(now, last)| Some(now.cycles?.saturating_sub(last.cycles.unwrap_or(0))))
                .reduce(|a, b| a + b),
            tcp_counters: since.tcp,
            process_load: self.processes.poll(),
            cpu_throttling: self.throttled(),
        };
        // A thread that has ended keeps its last CPU time.
        for (now, last) in now.times.iter_mut().zip(mem::take(&mut self.last.times)) {
            now[0] = now[0].or(last[0]);
            now[1] = now[1].or(last[1]);
        }
        self.last = now;
        interval
    }

    /// CPU quota throttling since the last call; `None` without a quota.
    fn throttled(&mut self) -> Option<CpuThrottling> {
        let now = self.throttling.read()?;
        let since = now.since(self.throttled.as_ref());
        self.throttled = Some(now);
        Some(since)
    }

    fn flow(
        &self,
        flow: &Flow,
        now: (Reading, Reading),
        last: (Reading, Reading),
        [sender_time, receiver_time]: [Option<ThreadTime>; 2],
    ) -> FlowInterval {
        let socket = &*flow.socket;
        let receives = flow.workers.iter().any(|worker| !worker.sends);
        let sends = flow.workers.iter().any(|worker| worker.sends);
        let lost = |reading: &Reading| reading.gaps.saturating_sub(reading.late);
        let numbered = !self.stream && receives;
        FlowInterval {
            flow: flow.number,
            sent_bytes: now.0.bytes - last.0.bytes,
            received_bytes: now.1.bytes - last.1.bytes,
            sender_core: now.0.core,
            receiver_core: now.1.core,
            sender_time,
            receiver_time,
            incoming_core: options::incoming_core(socket).ok().flatten(),
            incoming_napi_id: options::incoming_napi_id(socket).ok().flatten(),
            tcp: self.stream.then(|| tcp_info::read(socket).ok()).flatten(),
            memory: options::memory(socket).ok(),
            zerocopy: (self.zerocopy && sends).then(|| ZerocopyCount {
                completed_count: now.0.zerocopy.completed_count - last.0.zerocopy.completed_count,
                copied_count: now.0.zerocopy.copied_count - last.0.zerocopy.copied_count,
            }),
            datagram_count: numbered.then(|| now.1.datagrams - last.1.datagrams),
            // A late arrival may have been counted as lost before.
            lost_count: numbered.then(|| lost(&now.1).saturating_sub(lost(&last.1))),
            reordered_count: numbered.then(|| now.1.late - last.1.late),
            jitter_ns: now.1.jitter_ns.filter(|_| numbered),
        }
    }
}

/// CPU time of each thread since the last reading, where both are known.
fn spent(now: &[[Option<ThreadTime>; 2]], last: &[[Option<ThreadTime>; 2]]) -> Vec<[Option<ThreadTime>; 2]> {
    let one = |now: Option<ThreadTime>, last: Option<ThreadTime>| Some(now?.since(&last?));
    now.iter().zip(last).map(|(now, last)| [one(now[0], last[0]), one(now[1], last[1])]).collect()
}
