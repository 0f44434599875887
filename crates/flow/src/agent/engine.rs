//! One end of a test whose sockets another protocol connects: the same data
//! threads, the same sampler, the same settings read back from the kernel.
//!
//! The caller connects the sockets in its own way and hands each to
//! [`Engine::stream`] or [`Engine::datagrams`] with what this end does on it;
//! then [`Engine::ready`], [`Engine::start`], an [`Engine::interval`] whenever one
//! is over, and [`Engine::silence`] at the end of the time.

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
    control::{Failure, FailureKind},
    flow::{FlowConfig, FlowSettings, Notice, Protocol, SendMethod, SideInterval},
};
use clearstream_sys::socket as options;
use socket2::Socket;

use super::{
    connect, cores,
    open::{self, Part},
    sample::{Flow, Sampler},
    settings,
    test::first_failure,
    window::HeldWindow,
};
use crate::{
    check,
    data::{AfterRead, Datagrams, Gate, Task, Way, Worker, WorkerReady},
    failure,
};

pub use crate::{data::Progress, schedule::Schedule};

/// How long threads may take to end once they were stopped.
const STOP_TIMEOUT: Duration = Duration::from_millis(2500);

/// What this end does on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It sends.
    Send,
    /// It receives.
    Receive,
}

impl Role {
    fn part(self) -> Part {
        Part { sends: self == Self::Send, receives: self == Self::Receive }
    }
}

/// Sizes of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramSize {
    /// Bytes of each.
    pub size_bytes: usize,
    /// Bytes of one send, several datagrams with segmentation offload.
    pub batch_bytes: usize,
}

/// Rejects what makes no sense on any host, and cores that this host lacks.
///
/// # Errors
/// `Invalid`, with what to write instead.
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

/// A data socket of the family of `address` with all that must be set before it
/// connects, neither bound nor connected.
///
/// # Errors
/// What this host cannot mean or lacks.
pub fn open_socket(config: &FlowConfig, address: IpAddr, role: Role) -> Result<Socket, Failure> {
    open::open(config, address, role.part())
}

/// Binds a client's data socket as far as the configuration says.
///
/// # Errors
/// Address, port or interface cannot be had.
pub fn bind_client(
    socket: &Socket,
    server: SocketAddr,
    config: &FlowConfig,
    flow: u32,
) -> Result<(), Failure> {
    open::bind_client(socket, server, config, flow)
}

/// Opens, binds and connects the TCP socket of a flow, with the congestion
/// control set once more over that of the route.
///
/// # Errors
/// As [`open_socket`] and [`bind_client`], and `Connection` or `Unreachable`.
pub fn connect(config: &FlowConfig, server: SocketAddr, role: Role, flow: u32) -> Result<Socket, Failure> {
    let socket = connect::reach(config, server, role.part(), flow)?;
    open::choose_congestion_control(&socket, config, role.part())?;
    Ok(socket)
}

/// Whether a congestion control is there without a module that the kernel would
/// load by its name, which is not for a stranger to cause.
pub fn is_congestion_control_loaded(name: &str) -> bool {
    super::refuse_to_load(&HostRoot::live(), Some(name)).is_ok()
}

/// The data threads of one end and their sampler. Dropping it ends them.
#[derive(Debug)]
pub struct Engine {
    config: FlowConfig,
    gate: Arc<Gate>,
    flows: Vec<Flow>,
    roles: Vec<Role>,
    told: (Sender<WorkerReady>, Receiver<WorkerReady>),
    sampler: Option<Sampler>,
}

impl Engine {
    /// Without sockets yet.
    pub fn new(config: &FlowConfig) -> Self {
        Self {
            config: config.clone(),
            gate: Arc::new(Gate::default()),
            flows: Vec::new(),
            roles: Vec::new(),
            told: mpsc::channel(),
            sampler: None,
        }
    }

    /// The next flow: a stream, moved by the configuration's send or receive method.
    ///
    /// # Errors
    /// A socket option or a thread cannot be had.
    pub fn stream(&mut self, socket: Socket, role: Role) -> Result<(), Failure> {
        let number = self.next();
        let way = match role {
            Role::Send => Way::Send(self.config.method),
            Role::Receive => Way::Receive(self.config.receive),
        };
        if role == Role::Receive
            && let Some(bytes) = settings::low_water(&self.config, &socket)
        {
            options::set_receive_low_water(&socket, u32::try_from(bytes).unwrap_or(u32::MAX)).map_err(
                |error| failure(FailureKind::Internal, format!("cannot set SO_RCVLOWAT: {error}")),
            )?;
        }
        let task = Task {
            flow: number,
            way,
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
        let worker = Worker::start(task, Arc::clone(&socket), Arc::clone(&self.gate), self.told.0.clone());
        self.push(socket, role, worker)
    }

    /// The next flow: datagrams, moved by `body` on its own thread after the
    /// start.
    ///
    /// # Errors
    /// A thread cannot be had.
    pub fn datagrams(
        &mut self,
        socket: Socket,
        role: Role,
        DatagramSize { size_bytes: size, batch_bytes: batch }: DatagramSize,
        body: impl FnOnce(&Socket, &Progress<'_>) -> io::Result<()> + Send + 'static,
    ) -> Result<(), Failure> {
        let number = self.next();
        let datagrams = Datagrams { size, batch, tag: [0; 8], rate_bps: None, patience: Duration::MAX };
        let way = match role {
            Role::Send => Way::SendDatagrams(datagrams),
            Role::Receive => Way::ReceiveDatagrams(datagrams),
        };
        let socket = Arc::new(socket);
        let own = Arc::clone(&socket);
        let worker = Worker::custom(
            (number, way),
            self.core(number, role),
            Arc::clone(&self.gate),
            self.told.0.clone(),
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

    /// Waits until every thread is there; what is in force on each socket, and
    /// what that is less than was requested.
    ///
    /// # Errors
    /// Memory for transfers cannot be had.
    pub fn ready(&mut self) -> Result<(FlowSettings, Vec<Notice>), Failure> {
        let threads = self.flows.len();
        let told: Vec<WorkerReady> = self.told.1.iter().take(threads).collect();
        if let Some(error) = told.iter().find_map(|worker| worker.buffer.as_ref().err()) {
            return Err(Failure::of_system(
                &format!("get memory for a transfer of {}", self.config.transfer()),
                error,
            ));
        }
        let root = HostRoot::live();
        let mut notices = settings::refused_pins(&told);
        let mut by_flow: Vec<Vec<WorkerReady>> = Vec::new();
        by_flow.resize_with(threads, Vec::new);
        for worker in told {
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

    /// Lets data flow.
    pub fn start(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.started();
        }
        self.gate.start();
    }

    /// Waits until the first data moves and starts this end's clock there;
    /// `None` when none moves before `until`, or the threads have ended.
    pub fn begin(&mut self, until: Instant) -> Option<Instant> {
        let begun = self.gate.wait_begun(until)?;
        if let Some(sampler) = &mut self.sampler {
            sampler.begin(begun);
        }
        Some(begun)
    }

    /// Waits for a moment; true when the test is over before it: a thread
    /// failed, or all have ended.
    pub fn wait_until(&self, until: Instant) -> bool {
        let receives = self.roles.contains(&Role::Receive);
        HeldWindow::of(&self.config, receives).wait_until(&self.gate, until, &self.flows)
    }

    /// Bytes moved so far by the threads of a role.
    pub fn moved_bytes(&self, role: Role) -> u64 {
        self.of(role).flat_map(|flow| &flow.workers).map(|worker| worker.slot.read().bytes).sum()
    }

    fn of(&self, role: Role) -> impl Iterator<Item = &Flow> {
        self.flows.iter().zip(&self.roles).filter(move |(_, own)| **own == role).map(|(flow, _)| flow)
    }

    /// The sockets of a role in the order of their flows.
    pub fn sockets(&self, role: Role) -> impl Iterator<Item = &Socket> {
        self.of(role).map(|flow| &*flow.socket)
    }

    /// What happened since the last call; `None` before [`Self::ready`].
    pub fn interval(&mut self, index: u32) -> Option<SideInterval> {
        Some(self.sampler.as_mut()?.interval(index, &self.flows))
    }

    /// The time is over: senders end after their transfer.
    pub fn silence(&self) {
        self.gate.silence();
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

    /// Closes a direction of the sockets of a role: a receiver takes what is
    /// queued and ends, a blocked sender ends.
    pub fn shut_down(&self, role: Role, how: Shutdown) {
        for socket in self.sockets(role) {
            // Fails when the connection is gone already.
            drop(socket.shutdown(how));
        }
    }

    /// Why a thread ended that was not to end, if one did.
    pub fn failure(&self) -> Option<Failure> {
        self.gate.outcomes(first_failure)
    }

    /// Ends all threads.
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
        // Before `ready` the gate does not know how many there are.
        self.gate.set_ready(self.flows.len());
        self.stop();
    }
}
