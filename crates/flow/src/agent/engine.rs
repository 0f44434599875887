//! One end of a test whose sockets another protocol connects: the same data threads, sampler and read-back of
//! settings.
//!
//! The caller connects the sockets itself and passes each to [`Engine::stream`] or [`Engine::datagrams`] with
//! the role of this end; then [`Engine::ready`], [`Engine::start`], an [`Engine::interval`] after each
//! interval, and [`Engine::expire`] at the end of the test time.

use std::{
    io,
    net::{IpAddr, Shutdown, SocketAddr},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};

use clearstream_host::HostRoot;
use clearstream_schema::{
    control::Failure,
    flow::{FlowConfig, FlowSettings, Protocol, SendMethod, SideInterval},
    notice::Notice,
};
use clearstream_sys::socket as options;
use socket2::Socket;

use super::{
    connect, cores,
    open::{self, Part},
    sample::{Flow, Sampler},
    settings,
    test::first_failure,
    window::WindowClamp,
};
use crate::{
    check,
    data::{AfterRead, Datagrams, Gate, Operation, Task, Worker, WorkerReady},
};

pub use crate::{data::Progress, schedule::Schedule};

/// Maximum time for threads to end after a stop.
const STOP_TIMEOUT: Duration = Duration::from_millis(2500);

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
    roles: Vec<Role>,
    worker_reports: (Sender<WorkerReady>, Receiver<WorkerReady>),
    sampler: Option<Sampler>,
}

impl Engine {
    /// An engine without sockets.
    pub fn new(config: &FlowConfig) -> Self {
        Self {
            config: config.clone(),
            gate: Arc::new(Gate::default()),
            flows: Vec::new(),
            roles: Vec::new(),
            worker_reports: mpsc::channel(),
            sampler: None,
        }
    }

    /// Adds the next flow: a stream, with the configured send or receive method.
    ///
    /// # Errors
    /// Setting a socket option or starting a thread failed.
    pub fn stream(&mut self, socket: Socket, role: Role) -> Result<(), Failure> {
        let number = self.next();
        let operation = match role {
            Role::Send => Operation::Send(self.config.method),
            Role::Receive => Operation::Receive(self.config.receive),
        };
        if role == Role::Receive
            && let Some(bytes) = settings::low_water(&self.config, &socket)
        {
            options::set_receive_low_water(&socket, u32::try_from(bytes).unwrap_or(u32::MAX))
                .map_err(|error| Failure::of_system("set SO_RCVLOWAT", &error))?;
        }
        let task = Task {
            flow: number,
            operation,
            transfer: usize::try_from(self.config.transfer().0).unwrap_or(usize::MAX),
            limit: self.config.bytes.map(|bytes| bytes.0),
            core: self.core(number, role),
            node: self.config.memory_node,
            burst: None,
            after_read: AfterRead {
                work: self.config.receiver_work.map(|time| time.to_std()),
                pause: self.config.receiver_pause.map(|time| time.to_std()),
            },
        };
        let socket = Arc::new(socket);
        let worker =
            Worker::start(task, Arc::clone(&socket), Arc::clone(&self.gate), self.worker_reports.0.clone());
        self.push(socket, role, worker)
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
        self.push(socket, role, worker)
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

    fn push(&mut self, socket: Arc<Socket>, role: Role, worker: io::Result<Worker>) -> Result<(), Failure> {
        let number = self.next();
        let worker = worker.map_err(|error| Failure::of_system("start a data thread", &error))?;
        self.flows.push(Flow { number, socket, workers: vec![worker] });
        self.roles.push(role);
        Ok(())
    }

    /// Waits until every thread is ready; returns the effective settings of each socket, with a notice for
    /// each that falls short of the request.
    ///
    /// # Errors
    /// Memory for transfers cannot be allocated.
    pub fn ready(&mut self) -> Result<(FlowSettings, Vec<Notice>), Failure> {
        let threads = self.flows.len();
        let worker_reports: Vec<WorkerReady> = self.worker_reports.1.iter().take(threads).collect();
        if let Some(error) = worker_reports.iter().find_map(|worker| worker.buffer.as_ref().err()) {
            return Err(Failure::of_system(
                &format!("get memory for a transfer of {}", self.config.transfer()),
                error,
            ));
        }
        let root = HostRoot::live();
        let mut notices = settings::failed_pins(&worker_reports);
        let mut by_flow: Vec<Vec<WorkerReady>> = Vec::new();
        by_flow.resize_with(threads, Vec::new);
        for worker in worker_reports {
            if let Some(place) = by_flow.get_mut(worker.flow as usize) {
                place.push(worker);
            }
        }
        let settings = FlowSettings {
            flows: self
                .flows
                .iter()
                .zip(&by_flow)
                .zip(&self.roles)
                .map(|((flow, workers), role)| {
                    settings::of_socket(&self.config, role.part(), &flow.socket, workers)
                })
                .collect(),
            boot_id: root.read("proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned()),
        };
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

    /// Releases the start barrier.
    pub fn start(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.started();
        }
        self.gate.start();
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

    /// Waits until an instant; true when the test is over before it: a thread failed, or all have ended.
    pub fn wait_until(&self, until: Instant) -> bool {
        let receives = self.roles.contains(&Role::Receive);
        WindowClamp::of(&self.config, receives).wait_until(&self.gate, until, &self.flows)
    }

    /// Bytes transferred so far by the threads of a role.
    pub fn moved_bytes(&self, role: Role) -> u64 {
        self.of(role).flat_map(|flow| &flow.workers).map(|worker| worker.counters.read().bytes).sum()
    }

    fn of(&self, role: Role) -> impl Iterator<Item = &Flow> {
        self.flows.iter().zip(&self.roles).filter(move |(_, own)| **own == role).map(|(flow, _)| flow)
    }

    /// The sockets of a role, in flow order.
    pub fn sockets(&self, role: Role) -> impl Iterator<Item = &Socket> {
        self.of(role).map(|flow| &*flow.socket)
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
            self.of(role).all(|flow| ended.iter().any(|(number, _)| *number == flow.number))
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

    /// Stops all threads.
    pub fn stop(&mut self) {
        self.gate.stop();
        self.shut_down(Role::Send, Shutdown::Both);
        self.shut_down(Role::Receive, Shutdown::Both);
        if self.gate.wait_ended(Instant::now() + STOP_TIMEOUT) {
            self.flows.iter_mut().flat_map(|flow| &mut flow.workers).for_each(Worker::join);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Before `ready` the gate does not know the number of threads.
        self.gate.set_ready(self.flows.len());
        self.stop();
    }
}
