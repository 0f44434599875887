//! Samples the TCP sockets of this host, or of other network namespaces too, over a time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use clearstream_host::{
    HostRoot,
    socket_owners::{self, SocketOwners},
};
use clearstream_netlink::{NetlinkError, TcpSockets};
use clearstream_schema::{
    connections::SocketOwner, control::FailureKind, failure::Classified, notice::Notice,
};
use clearstream_sys::namespace::NamespaceSet;

use super::{Observed, SocketSeries};

/// No multiple of usual periods, as in the active diagnosis.
const INTERVAL: Duration = Duration::from_millis(137);
/// Sampling takes at most this part of the time: with many sockets the interval is longer.
const COST_DIVISOR: u32 = 5;
/// Time between two scans of `/proc` for owners of new sockets.
const OWNER_INTERVAL: Duration = Duration::from_secs(1);
/// Processes whose threads are timed.
const TIMED_MAX: usize = 512;

/// What to observe.
#[derive(Debug, Clone)]
pub struct ObserveOptions {
    /// Duration.
    pub duration: Duration,
    /// Processes whose network namespaces are observed beside that of the caller.
    pub namespaces: Vec<u32>,
}

/// Reason why nothing was observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The kernel does not list sockets.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A namespace cannot be entered.
    #[error("the network namespace of process {pid} cannot be observed: {source}")]
    Namespace {
        /// Process.
        pid: u32,
        /// System error.
        source: io::Error,
    },
}

impl Classified for ObserveError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Netlink(error) => error.failure_kind(),
            Self::Namespace { .. } => FailureKind::Unsupported,
        }
    }
}

/// A network namespace.
#[derive(Debug)]
struct Source {
    namespace: Option<u32>,
    sockets: TcpSockets,
    receive_max: Option<u64>,
    send_max: Option<u64>,
}

impl Source {
    fn open(namespace: Option<u32>) -> Result<Self, NetlinkError> {
        // `/proc/sys/net` is that of the reading thread's namespace.
        let root = HostRoot::live();
        let maximum = |name: &str| {
            let text = root.read(&format!("proc/sys/net/ipv4/{name}")).ok()?;
            text.split_ascii_whitespace().nth(2)?.parse().ok()
        };
        let (receive_max, send_max) = (maximum("tcp_rmem"), maximum("tcp_wmem"));
        Ok(Self { namespace, sockets: TcpSockets::open()?, receive_max, send_max })
    }
}

fn sources(pids: &[u32]) -> Result<Vec<Source>, ObserveError> {
    let mut found = vec![Source::open(None)?];
    let fail = |pid| move |source| ObserveError::Namespace { pid, source };
    let own = std::process::id();
    let own = NamespaceSet::of_process(own).and_then(|set| set.net_inode()).map_err(fail(own));
    let mut seen = BTreeSet::new();
    seen.extend(own.ok());
    for pid in pids.iter().copied() {
        let set = NamespaceSet::of_process(pid).map_err(fail(pid))?;
        if seen.insert(set.net_inode().map_err(fail(pid))?) {
            found.push(set.run(|| Source::open(Some(pid))).map_err(fail(pid))??);
        }
    }
    Ok(found)
}

/// Samples all sockets every 137 ms, less often where that takes long. `progress` gets the time left.
pub fn observe(
    options: &ObserveOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Duration),
) -> Result<Observed, ObserveError> {
    let mut sampler = Sampler::new(sources(&options.namespaces)?);
    sampler.sample()?;
    sampler.read_owners();
    sampler.begin_timing();
    while sampler.begun.elapsed() < options.duration && !stop.load(Ordering::Relaxed) {
        let left = options.duration.saturating_sub(sampler.begun.elapsed());
        progress(left);
        thread::sleep(sampler.pause().min(left));
        sampler.sample()?;
        if sampler.has_new && sampler.owners_read.elapsed() >= OWNER_INTERVAL {
            sampler.read_owners();
        }
    }
    Ok(sampler.end())
}

/// Observes without an end: what it reports is of the last `window`.
#[derive(Debug)]
pub struct SocketMonitor {
    sampler: Sampler,
    window: Duration,
}

impl SocketMonitor {
    /// Takes the first sample; `options.duration` is the window.
    ///
    /// # Errors
    /// The kernel does not list sockets, or a namespace cannot be entered.
    pub fn open(options: &ObserveOptions) -> Result<Self, ObserveError> {
        let mut sampler = Sampler::new(sources(&options.namespaces)?);
        sampler.sample()?;
        sampler.read_owners();
        sampler.begin_timing();
        Ok(Self { sampler, window: options.duration })
    }

    /// Samples every 137 ms, less often where that takes long, and returns at `end`.
    ///
    /// # Errors
    /// The kernel does not list sockets.
    pub fn sample_until(&mut self, end: Instant) -> Result<(), ObserveError> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            thread::sleep(self.sampler.pause().min(left));
            if Instant::now() >= end {
                return Ok(());
            }
            self.sampler.sample()?;
        }
    }

    /// All sockets over the window.
    ///
    /// # Errors
    /// The kernel does not list sockets.
    pub fn observed(&mut self) -> Result<Observed, ObserveError> {
        self.sampler.sample()?;
        self.sampler.forget(self.window);
        if self.sampler.has_new && self.sampler.owners_read.elapsed() >= OWNER_INTERVAL {
            self.sampler.read_owners();
        }
        self.sampler.read_owner_states();
        self.sampler.begin_timing();
        Ok(self.sampler.document(self.sampler.series.values().cloned().collect()))
    }
}

#[derive(Debug)]
struct Sampler {
    root: HostRoot,
    sources: Vec<Source>,
    begun: Instant,
    at_ns: Vec<u64>,
    last_begun: Instant,
    last_cost: Duration,
    longest: Duration,
    /// By place of the source and cookie.
    series: BTreeMap<(usize, u64), SocketSeries>,
    has_new: bool,
    owners_read: Instant,
    unreadable_count: u64,
    timed: HashMap<u32, HashMap<u32, u64>>,
    timing_begun: Instant,
}

impl Sampler {
    fn new(sources: Vec<Source>) -> Self {
        let now = Instant::now();
        Self {
            root: HostRoot::live(),
            sources,
            begun: now,
            at_ns: Vec::new(),
            last_begun: now,
            last_cost: Duration::ZERO,
            longest: Duration::ZERO,
            series: BTreeMap::new(),
            has_new: false,
            owners_read: now,
            unreadable_count: 0,
            timed: HashMap::new(),
            timing_begun: now,
        }
    }

    /// Until the next sample: intervals count from begin to begin.
    fn pause(&self) -> Duration {
        INTERVAL.max(self.last_cost * COST_DIVISOR).saturating_sub(self.last_begun.elapsed())
    }

    fn sample(&mut self) -> Result<(), NetlinkError> {
        let started = Instant::now();
        let since = |begun: Instant| u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let (series, has_new) = (&mut self.series, &mut self.has_new);
        for (place, source) in self.sources.iter_mut().enumerate() {
            let (namespace, receive_max, send_max) = (source.namespace, source.receive_max, source.send_max);
            let begun = self.begun;
            source.sockets.each(|socket| {
                let one = series.entry((place, socket.cookie)).or_insert_with(|| {
                    *has_new = true;
                    SocketSeries {
                        host: None,
                        namespace,
                        owners: Vec::new(),
                        receive_buffer_max_bytes: receive_max,
                        send_buffer_max_bytes: send_max,
                        samples: Vec::with_capacity(2),
                    }
                });
                // With many sockets a dump takes long: each has the time of its own reading.
                one.push(since(begun), socket);
            })?;
        }
        self.at_ns.push(since(self.begun));
        (self.last_begun, self.last_cost) = (started, started.elapsed());
        self.longest = self.longest.max(self.last_cost);
        Ok(())
    }

    /// Owners of sockets that have none yet.
    fn read_owners(&mut self) {
        let owners = SocketOwners::read(&self.root);
        for series in self.series.values_mut().filter(|series| series.owners.is_empty()) {
            if let Some(sample) = series.samples.last() {
                series.owners = owners.of(sample.socket.inode).to_vec();
            }
        }
        self.unreadable_count = owners.unreadable_count;
        (self.has_new, self.owners_read) = (false, Instant::now());
    }

    fn begin_timing(&mut self) {
        let owners = self.series.values().flat_map(|series| &series.owners);
        let pids: BTreeSet<u32> = owners.map(|owner| owner.pid).collect();
        self.timing_begun = Instant::now();
        let times = pids.into_iter().take(TIMED_MAX);
        self.timed = times.map(|pid| (pid, socket_owners::thread_times(&self.root, pid))).collect();
    }

    fn end(mut self) -> Observed {
        if self.has_new {
            self.read_owners();
        }
        self.read_owner_states();
        let series = std::mem::take(&mut self.series).into_values().collect();
        self.document(series)
    }

    /// Drops samples from before the window, except for the last of them, from which differences count; and sockets
    /// that are gone.
    fn forget(&mut self, window: Duration) {
        let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let from = self.at_ns.last().copied().unwrap_or(0).saturating_sub(window);
        self.at_ns.retain(|at| *at >= from);
        self.series.retain(|_, series| series.samples.last().is_some_and(|sample| sample.at_ns >= from));
        for series in self.series.values_mut() {
            let later = series.samples.partition_point(|sample| sample.at_ns <= from);
            series.samples.drain(..later.saturating_sub(1));
        }
    }

    /// Whether owners are stopped, and the time of their busiest thread since timing began.
    fn read_owner_states(&mut self) {
        let elapsed = self.timing_begun.elapsed().as_nanos() as f64;
        let mut known: HashMap<u32, (bool, Option<f64>)> = HashMap::new();
        for owner in self.series.values_mut().flat_map(|series| &mut series.owners) {
            let (root, timed) = (&self.root, &self.timed);
            let state = known.entry(owner.pid).or_insert_with(|| state(root, timed, owner, elapsed));
            (owner.stopped, owner.busiest_thread_ratio) = *state;
        }
    }

    fn document(&self, series: Vec<SocketSeries>) -> Observed {
        let mut intervals: Vec<u64> = self.at_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
        intervals.sort_unstable();
        let ends = self.at_ns.first().zip(self.at_ns.last());
        Observed {
            duration_ns: ends.map_or(0, |(first, last)| last - first),
            sample_count: u32::try_from(self.at_ns.len()).unwrap_or(u32::MAX),
            interval_ns: intervals.get(intervals.len() / 2).copied().unwrap_or(0),
            longest_sample_ns: u64::try_from(self.longest.as_nanos()).unwrap_or(u64::MAX),
            notices: self.notices(&series),
            left_out_count: 0,
            series,
        }
    }

    fn notices(&self, series: &[SocketSeries]) -> Vec<Notice> {
        let unowned = series.iter().filter(|series| series.owners.is_empty()).count();
        let notice = (unowned > 0 && self.unreadable_count > 0).then(|| Notice {
            id: "owners-unreadable".to_owned(),
            message: format!(
                "the programs of {unowned} sockets are not known: open files of {} processes cannot be read \
                 (needs root or CAP_SYS_PTRACE)",
                self.unreadable_count
            ),
        });
        notice.into_iter().collect()
    }
}

/// Whether a process is stopped, and the share of its busiest thread.
fn state(
    root: &HostRoot,
    timed: &HashMap<u32, HashMap<u32, u64>>,
    owner: &SocketOwner,
    elapsed_ns: f64,
) -> (bool, Option<f64>) {
    let ratio = timed.get(&owner.pid).and_then(|before| {
        let now = socket_owners::thread_times(root, owner.pid);
        let spent = now.iter().map(|(id, ns)| ns.saturating_sub(before.get(id).copied().unwrap_or(0)));
        Some((spent.max()? as f64 / elapsed_ns.max(1.0)).min(1.0))
    });
    (socket_owners::is_stopped(root, owner.pid), ratio)
}
