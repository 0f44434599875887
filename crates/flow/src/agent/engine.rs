//! The data threads of one end of a test, with their sampler and the settings of their sockets as read back: of a flow
//! test ([`super::test`]), and of other protocols, which connect their sockets themselves.
//!
//! The caller passes each connected socket to [`Engine::stream`] or [`Engine::datagrams`] with the role of this end; then
//! [`Engine::ready`], [`Engine::start`], an [`Engine::interval`] after each interval, and [`Engine::expire`] at the end of
//! the test time.

use std::{
    io,
    net::{IpAddr, Shutdown, SocketAddr},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};

use clearstream_control::EventSender;
use clearstream_host::HostRoot;
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::{FlowConfig, FlowSettings, Protocol, SendMethod, SideInterval},
    notice::Notice,
};
use clearstream_sys::socket as options;
use socket2::Socket;

use super::{
    adapter::{self, Adapter},
    connect, cores,
    open::{self, Part},
    sample::{Flow, Sampler},
    settings,
    test::first_failure,
    window::WindowClamp,
};
use crate::{
    adapt::{Open, largest_transfer},
    check,
    data::{AfterRead, Burst, Datagrams, Gate, Operation, Task, TransferSize, Worker, WorkerReady},
};

pub use crate::{data::Progress, schedule::Schedule};

/// Maximum time for threads to end after the test time, and once more after their sockets are closed.
pub(super) const END_TIMEOUT: Duration = Duration::from_millis(2500);

/// Flows from which on data threads leave others the way.
const CROWD: u32 = 64;
/// Role of this end on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sender.
    Send,
    /// Receiver.
    Receive,
}

impl Role {
    fn part(self) -> Part {
        Part { sends: self == Self::Send, receives: self == Self::Receive }
    }
}

/// Datagram and batch sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramSize {
    /// Bytes of each datagram.
    pub size_bytes: usize,
    /// Bytes of one send, several datagrams with segmentation offload.
    pub batch_bytes: usize,
}

/// Rejects configurations that are invalid on any host, and cores that this host lacks.
///
/// # Errors
/// `Invalid`, with a suggested correction.
pub fn check(config: &FlowConfig, sends: bool, receives: bool) -> Result<(), Failure> {
    check::check(config)?;
    let root = HostRoot::live();
    if sends {
        cores::check(&root, "sender-cores", config.sender_cores.as_ref())?;
    }
    if receives {
        cores::check(&root, "receiver-cores", config.receiver_cores.as_ref())?;
    }
    Ok(())
}

/// Creates a data socket of the family of `address` with all options that must be set before it connects,
/// neither bound nor connected.
///
/// # Errors
/// Options that this host does not support.
pub fn open_socket(config: &FlowConfig, address: IpAddr, role: Role) -> Result<Socket, Failure> {
    open::open(config, address, role.part())
}

/// Binds a client's data socket as configured.
///
/// # Errors
/// The address, port or interface is unavailable.
pub fn bind_client(
    socket: &Socket,
    server: SocketAddr,
    config: &FlowConfig,
    flow: u32,
) -> Result<(), Failure> {
    open::bind_client(socket, server, config, flow)
}

/// Opens, binds and connects the TCP socket of a flow, and sets the congestion control once more, overriding
/// that of the route.
///
/// # Errors
/// As [`open_socket`] and [`bind_client`], and `Connection` or `Unreachable`.
pub fn connect(config: &FlowConfig, server: SocketAddr, role: Role, flow: u32) -> Result<Socket, Failure> {
    let socket = connect::reach(config, server, role.part(), flow)?;
    open::choose_congestion_control(&socket, config, role.part())?;
    Ok(socket)
}

/// Whether a congestion control is available without the kernel loading its module by name, which an
/// unprivileged peer must not cause.
pub fn is_congestion_control_loaded(name: &str) -> bool {
    super::refuse_to_load(&HostRoot::live(), Some(name)).is_ok()
}

/// The data threads of one end and their sampler. Stopped when dropped.
#[derive(Debug)]
pub struct Engine {
    config: FlowConfig,
    gate: Arc<Gate>,
    flows: Vec<Flow>,
    /// Of each flow.
    parts: Vec<Part>,
    worker_reports: (Sender<WorkerReady>, Receiver<WorkerReady>),
    /// Of each flow, once all are ready.
    ready: Vec<Vec<WorkerReady>>,
    transfer: TransferSize,
    open: Open,
    adapter: adapter::Shared,
    sampler: Option<Sampler>,
    has_ended: bool,
}

impl Engine {
    /// An engine without sockets.
    pub fn new(config: &FlowConfig) -> Self {
        Self::of(config, Arc::new(Gate::default()), Open::default(), adapter::Shared::default())
    }

    /// An engine whose start and end others see at `gate`, and whose warm-up tries what is open.
    pub(super) fn of(config: &FlowConfig, gate: Arc<Gate>, open: Open, adapter: adapter::Shared) -> Self {
        Self {
            config: config.clone(),
            gate,
            flows: Vec::new(),
            parts: Vec::new(),
            worker_reports: mpsc::channel(),
            ready: Vec::new(),
            transfer: TransferSize::new(usize::try_from(config.transfer().0).unwrap_or(usize::MAX)),
            open,
            adapter,
            sampler: None,
            has_ended: false,
        }
    }

    /// Adds the next flow: a stream, with the configured send or receive method.
    ///
    /// # Errors
    /// Setting a socket option or starting a thread failed.
    pub fn stream(&mut self, socket: Socket, role: Role) -> Result<(), Failure> {
        let operation = match role {
            Role::Send => Operation::Send(self.config.method),
            Role::Receive => Operation::Receive(self.config.receive),
        };
        self.add(Arc::new(socket), role.part(), &[operation])
    }

    /// Adds the next flow, with a thread for each operation.
    ///
    /// # Errors
    /// As [`Self::stream`].
    pub(super) fn add(
        &mut self,
        socket: Arc<Socket>,
        part: Part,
        operations: &[Operation],
    ) -> Result<(), Failure> {
        let (number, mut workers) = (self.next(), Vec::new());
        for operation in operations {
            if matches!(operation, Operation::Receive(_))
                && let Some(bytes) = settings::low_water(&self.config, &socket)
            {
                options::set_receive_low_water(&socket, u32::try_from(bytes).unwrap_or(u32::MAX))
                    .map_err(|error| Failure::of_system("set SO_RCVLOWAT", &error))?;
            }
            let reports = self.worker_reports.0.clone();
            let task = self.task(number, *operation);
            workers.push(started(Worker::start(task, Arc::clone(&socket), Arc::clone(&self.gate), reports))?);
        }
        self.push(socket, part, workers);
        Ok(())
    }

    fn task(&self, flow: u32, operation: Operation) -> Task {
        let config = &self.config;
        let sends = matches!(operation, Operation::Send(_) | Operation::SendDatagrams(_));
        let bursts = flow >= config.flows.saturating_sub(config.burst_flows);
        Task {
            flow,
            operation,
            transfer: self.transfer.clone(),
            transfer_max: usize::try_from(largest_transfer(config, self.open)).unwrap_or(usize::MAX),
            limit: config.bytes.map(|bytes| bytes.0),
            core: self.core(flow, if sends { Role::Send } else { Role::Receive }),
            node: config.memory_node,
            is_crowded: config.flows >= CROWD,
            after_read: AfterRead {
                work: config.receiver_work.map(|time| time.to_std()),
                pause: config.receiver_pause.map(|time| time.to_std()),
            },
            burst: bursts.then_some(Burst { on: config.burst_on.to_std(), off: config.burst_off.to_std() }),
        }
    }

    /// Adds the next flow: datagrams, processed by `body` on its own thread after the start.
    ///
    /// # Errors
    /// Starting a thread failed.
    pub fn datagrams(
        &mut self,
        socket: Socket,
        role: Role,
        DatagramSize { size_bytes: size, batch_bytes: batch }: DatagramSize,
        body: impl FnOnce(&Socket, &Progress<'_>) -> io::Result<()> + Send + 'static,
    ) -> Result<(), Failure> {
        let number = self.next();
        let datagrams = Datagrams { size, batch, tag: [0; 8], rate_bps: None, timeout: Duration::MAX };
        let operation = match role {
            Role::Send => Operation::SendDatagrams(datagrams),
            Role::Receive => Operation::ReceiveDatagrams(datagrams),
        };
        let socket = Arc::new(socket);
        let own = Arc::clone(&socket);
        let worker = Worker::custom(
            (number, operation),
            self.core(number, role),
            Arc::clone(&self.gate),
            self.worker_reports.0.clone(),
            move |progress| body(&own, progress),
        );
        let workers = vec![started(worker)?];
        self.push(socket, role.part(), workers);
        Ok(())
    }

    fn next(&self) -> u32 {
        u32::try_from(self.flows.len()).unwrap_or(u32::MAX)
    }

    fn core(&self, flow: u32, role: Role) -> Option<u32> {
        let list = match role {
            Role::Send => &self.config.sender_cores,
            Role::Receive => &self.config.receiver_cores,
        };
        cores::of_flow(list.as_ref(), flow)
    }

    fn push(&mut self, socket: Arc<Socket>, part: Part, workers: Vec<Worker>) {
        let number = self.next();
        self.flows.push(Flow { number, socket, workers });
        self.parts.push(part);
    }

    fn thread_count(&self) -> usize {
        self.flows.iter().map(|flow| flow.workers.len()).sum()
    }

    /// Waits until every thread is ready; returns the effective settings of each socket, with a notice for
    /// each that falls short of the request.
    ///
    /// # Errors
    /// Memory for transfers cannot be allocated.
    pub fn ready(&mut self) -> Result<(FlowSettings, Vec<Notice>), Failure> {
        let threads = self.thread_count();
        let worker_reports: Vec<WorkerReady> = self.worker_reports.1.iter().take(threads).collect();
        if let Some(error) = worker_reports.iter().find_map(|worker| worker.buffer.as_ref().err()) {
            return Err(self.without_memory(error));
        }
        let root = HostRoot::live();
        let mut notices = settings::failed_pins(&worker_reports);
        self.ready.resize_with(self.flows.len(), Vec::new);
        for worker in worker_reports {
            if let Some(place) = self.ready.get_mut(worker.flow as usize) {
                place.push(worker);
            }
        }
        let settings = self.settings(&root);
        if let Some(first) = settings.flows.first() {
            notices.extend(settings::capped_windows(&self.config, &root, first));
        }
        if let Some(sender) = settings.flows.iter().find(|flow| flow.method.is_some()) {
            notices.extend(settings::refused_congestion_control(&self.config, &root, sender));
        }
        let stream = self.config.protocol != Protocol::Udp;
        let zerocopy = stream && self.config.method == SendMethod::Zerocopy;
        self.sampler = Some(Sampler::prepare(&self.flows, &root, stream, zerocopy));
        self.gate.set_ready(threads);
        Ok((settings, notices))
    }

    /// Effective settings of all sockets and threads.
    fn settings(&self, root: &HostRoot) -> FlowSettings {
        let flows = self.flows.iter().zip(&self.ready).zip(&self.parts);
        let of = |((flow, workers), part): ((&Flow, &Vec<WorkerReady>), &Part)| {
            settings::of_socket(&self.config, *part, (&flow.socket, self.transfer.get()), workers)
        };
        FlowSettings {
            flows: flows.map(of).collect(),
            boot_id: root.read("proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned()),
        }
    }

    /// Begins the turns of the adaptive warm-up at the first data.
    pub(super) fn adapt(&self, test: u64, events: &EventSender, begun: Instant) {
        if self.open.any() {
            let own = (&self.flows[..], self.transfer.clone());
            let adapter = Adapter::new((test, events), &self.config, self.open, own, begun);
            *adapter::locked(&self.adapter) = Some(adapter);
        }
    }

    /// Effective settings again, once after the warm-up has changed them.
    pub(super) fn adapted_settings(&mut self) -> Option<FlowSettings> {
        let adopted = adapter::locked(&self.adapter).as_mut()?.take_adopted()?;
        for (flow, workers) in self.ready.iter_mut().enumerate() {
            for worker in workers {
                let sends = matches!(worker.operation, Operation::Send(_) | Operation::SendDatagrams(_));
                worker.pinned = adopted.core_of(flow, sends).map(Ok).or(worker.pinned.take());
            }
        }
        Some(self.settings(&HostRoot::live()))
    }

    fn without_memory(&self, error: &io::Error) -> Failure {
        let Some(node) = self.config.memory_node else {
            return Failure::of_system(
                &format!("get memory for a transfer of {}", self.config.transfer()),
                error,
            );
        };
        Failure::new(
            FailureKind::Invalid,
            format!(
                "memory-node: no memory from node {node} on this host ({error}): `numactl --hardware` lists the nodes"
            ),
        )
    }

    /// Releases the start barrier.
    pub fn start(&mut self) {
        self.started();
        self.gate.start();
    }

    /// The start barrier is released.
    pub(super) fn started(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.started();
        }
    }

    /// Waits for the first data and starts this end's clock there; `None` when none arrives before `until`,
    /// or the threads have ended.
    pub fn begin(&mut self, until: Instant) -> Option<Instant> {
        let begun = self.gate.wait_begun(until)?;
        if let Some(sampler) = &mut self.sampler {
            sampler.begin(begun);
        }
        Some(begun)
    }

    /// Waits until an instant, while the warm-up takes its turns; true when the test is over before it.
    pub fn wait_until(&self, until: Instant) -> bool {
        let receives = self.parts.iter().any(|part| part.receives);
        let clamp = WindowClamp::of(&self.config, receives);
        loop {
            let next = adapter::take_turns(&self.adapter).map_or(until, |next| next.min(until));
            let is_over = clamp.wait_until(&self.gate, next, &self.flows);
            if is_over || next == until {
                return is_over;
            }
        }
    }

    /// Bytes transferred so far by the threads of a role.
    pub fn moved_bytes(&self, role: Role) -> u64 {
        self.with(role).flat_map(|flow| &flow.workers).map(|worker| worker.counters.read().bytes).sum()
    }

    fn with(&self, role: Role) -> impl Iterator<Item = &Flow> {
        let has = move |part: &Part| if role == Role::Send { part.sends } else { part.receives };
        self.flows.iter().zip(&self.parts).filter(move |(_, part)| has(part)).map(|(flow, _)| flow)
    }

    /// The sockets of a role, in flow order.
    pub fn sockets(&self, role: Role) -> impl Iterator<Item = &Socket> {
        self.with(role).map(|flow| &*flow.socket)
    }

    /// All sockets, in flow order.
    pub(super) fn all_sockets(&self) -> impl Iterator<Item = &Socket> {
        self.flows.iter().map(|flow| &*flow.socket)
    }

    /// Returns the counts since the last call; `None` before [`Self::ready`].
    pub fn interval(&mut self, index: u32) -> Option<SideInterval> {
        Some(self.sampler.as_mut()?.interval(index, &self.flows))
    }

    /// Marks the test time as over: senders end after their current transfer.
    pub fn expire(&self) {
        self.gate.expire();
    }

    /// Whether every thread of a role has ended.
    pub fn has_ended(&self, role: Role) -> bool {
        self.gate.outcomes(|ended| {
            self.with(role).all(|flow| ended.iter().any(|(number, _)| *number == flow.number))
        })
    }

    /// Waits until every thread has ended; false when that takes longer.
    pub fn wait_ended(&self, until: Instant) -> bool {
        self.gate.wait_ended(until)
    }

    /// Shuts down a direction of the sockets of a role: a receiver reads what is queued and ends, a blocked
    /// sender ends.
    pub fn shut_down(&self, role: Role, how: Shutdown) {
        for socket in self.sockets(role) {
            // Fails when the connection is already closed.
            drop(socket.shutdown(how));
        }
    }

    /// First failure of a thread, if any.
    pub fn failure(&self) -> Option<Failure> {
        self.gate.outcomes(first_failure)
    }

    /// Ends all threads at the end of the test time: senders after their current transfer, receivers when they have read
    /// what is there; those that do not, and all of a test that was stopped, by closing their sockets.
    pub(super) fn end(&mut self) {
        self.gate.expire();
        if self.gate.is_stopped() || !self.gate.wait_ended(Instant::now() + END_TIMEOUT) {
            return self.stop();
        }
        self.join();
    }

    /// Stops all threads.
    pub fn stop(&mut self) {
        self.gate.stop();
        self.shut_down(Role::Send, Shutdown::Both);
        self.shut_down(Role::Receive, Shutdown::Both);
        if self.gate.wait_ended(Instant::now() + END_TIMEOUT) {
            self.join();
        }
    }

    fn join(&mut self) {
        self.flows.iter_mut().flat_map(|flow| &mut flow.workers).for_each(Worker::join);
        self.has_ended = true;
    }
}

fn started(worker: io::Result<Worker>) -> Result<Worker, Failure> {
    worker.map_err(|error| Failure::of_system("start a data thread", &error))
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It holds the sockets, too.
        *adapter::locked(&self.adapter) = None;
        if self.has_ended {
            return;
        }
        if self.sampler.is_some() {
            return self.stop();
        }
        // Not ready, and nobody may be told so: each thread still waits at the start barrier, and ends there.
        self.gate.stop();
        self.join();
    }
}
