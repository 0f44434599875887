//! Connection setups in progress, advanced by the helper thread.

use std::{
    ffi::c_int,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    rnic::QueuePair,
    verbs::{ConnectError, ConnectOptions, Connecting, Established, Incoming, Listener},
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::{
    abi::{
        IBV_QPS_RTS, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST,
        RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
        RDMA_CM_EVENT_UNREACHABLE,
    },
    device::READS_MAX,
    handle::{Handle, locked},
    queue_pair::set_state,
    report::notice,
    runtime::Runtime,
    sockets,
};

use super::{
    Connections,
    event::{Details, EventChannel, push},
    id::{Id, Stage, allocate_id},
};

/// Time for which a connection that is refused is attempted: programs announce
/// their port, or the end of their preparations, before they listen, and the
/// hardware's setup takes longer than the rest of that.
const REFUSED_MAX: Duration = Duration::from_millis(500);
const REFUSED_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// What the helper advances.
pub enum Setup {
    /// A listener and its identifier.
    Listening(Arc<Listener>, Handle<Id>),
    /// A setup of this side.
    Connecting(Box<Attempt>),
    /// A setup of this side that was refused, until its next attempt.
    Waiting(OwnedFd, Box<Plan>),
}

impl Setup {
    /// Returns the descriptor that the helper watches.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listening(listener, _) => listener.as_fd(),
            Self::Connecting(attempt) => attempt.connecting.as_fd(),
            Self::Waiting(timer, _) => timer.as_fd(),
        }
    }
}

/// What a setup of this side needs.
pub struct Plan {
    /// Identifier.
    pub id: Handle<Id>,
    /// Queue pair.
    pub pair: QueuePair,
    /// Peer.
    pub peer: SocketAddr,
    /// Options.
    pub options: ConnectOptions,
    /// Time of the first attempt.
    pub since: Instant,
}

/// A setup in progress.
pub struct Attempt {
    plan: Plan,
    connecting: Connecting,
}

impl Plan {
    /// Starts a setup under a token.
    ///
    /// # Errors
    /// As for a queue pair's `start_connect`.
    pub fn start(
        self,
        runtime: &Runtime,
        connections: &mut Connections,
        token: u64,
    ) -> Result<(), ConnectError> {
        let connecting = self.pair.start_connect(self.peer, &self.options)?;
        let watched = runtime.helper.watch_setup(connecting.as_fd(), token);
        watched.map_err(|source| ConnectError::System { step: "watch a setup", source })?;
        let attempt = Attempt { plan: self, connecting };
        connections.setups.insert(token, Setup::Connecting(Box::new(attempt)));
        Ok(())
    }
}

/// Returns the errno of a setup error.
pub fn code_of(error: &ConnectError) -> c_int {
    match error {
        ConnectError::Tcp { source, .. } | ConnectError::System { source, .. } => match source.kind() {
            io::ErrorKind::TimedOut => libc::ETIMEDOUT,
            _ => source.raw_os_error().unwrap_or(libc::EIO),
        },
        ConnectError::TimedOut { .. } => libc::ETIMEDOUT,
        ConnectError::Closed { .. } => libc::ECONNRESET,
        ConnectError::Rejected { .. } => libc::ECONNREFUSED,
        ConnectError::State(_) | ConnectError::Option(_) | ConnectError::Reads { .. } => libc::EINVAL,
        ConnectError::Setup { .. } | ConnectError::NeedsRevision2 { .. } => libc::EPROTO,
    }
}

/// Advances the setup, or the listener, of a token.
pub fn advance(runtime: &Runtime, token: u64) {
    let mut connections = locked(&runtime.connections);
    match connections.setups.get_mut(&token) {
        Some(Setup::Listening(listener, id)) => {
            let (listener, id) = (listener.clone(), *id);
            while let Ok(Some(incoming)) = listener.accept(Some(Duration::ZERO)) {
                request(id, incoming);
            }
            listener.failures().iter().for_each(drop);
            if let Some(error) = listener.lack() {
                notice(&format!("connections wait to be accepted: {error}: raise the limit (ulimit -n)"));
            }
        }
        Some(Setup::Connecting(attempt)) => {
            let outcome = attempt.connecting.advance();
            let done = match outcome {
                Ok(None) => return,
                Ok(Some(established)) => Ok(established),
                Err(error) => Err(error),
            };
            let Some(Setup::Connecting(attempt)) = connections.setups.remove(&token) else { return };
            runtime.helper.unwatch_setup(attempt.connecting.as_fd());
            let Attempt { plan, connecting } = *attempt;
            // The queue pair is idle again after a failure.
            drop(connecting);
            conclude(runtime, &mut connections, token, plan, done);
        }
        Some(Setup::Waiting(..)) => {
            let Some(Setup::Waiting(timer, plan)) = connections.setups.remove(&token) else { return };
            runtime.helper.unwatch_setup(timer.as_fd());
            let id = plan.id;
            if let Err(error) = plan.start(runtime, &mut connections, token) {
                fail(id, &error);
            }
        }
        None => {}
    }
}

/// Outstanding Reads of a connection: responder and initiator.
pub fn of_connection(established: &Established) -> (u8, u8) {
    let limit = |reads: u16| reads.min(READS_MAX.into()) as u8;
    (limit(established.ird), limit(established.ord))
}

/// A peer requests a connection.
fn request(listener: Handle<Id>, incoming: Incoming) {
    // SAFETY: the listener is in the table, whose lock is held; its channel outlives it.
    let (parent, inner, channel) = unsafe {
        let known = &*listener.0;
        (&known.abi, &known.inner, &*known.abi.channel.cast::<EventChannel>())
    };
    if channel.requests_of(listener) >= inner.backlog {
        // As the kernel answers it (`ucma_event_handler`); the peer may be gone.
        let _ = incoming.reject(&[]);
        return;
    }
    let id = Handle(allocate_id(parent.channel, parent.context, parent.ps, false));
    // SAFETY: allocated above.
    let known = unsafe { &mut *id.0 };
    known.set_addresses(Some(incoming.local), Some(incoming.peer));
    known.set_device();
    let limit = |reads: Option<u16>| reads.map_or(READS_MAX, |reads| reads.min(READS_MAX.into()) as u8);
    // What the peer sends as initiator, this side serves as responder.
    known.inner.reads = (limit(incoming.ord), limit(incoming.ird));
    let details = Details {
        private_data: incoming.private_data.clone(),
        reads: known.inner.reads,
        listener: Some(listener),
    };
    // As the kernel's listener, whose accepted sockets inherit it.
    known.inner.socket = inner.socket;
    known.inner.stage = Stage::Requested(Box::new(incoming));
    push(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, details);
}

/// A setup of this side is over.
fn conclude(
    runtime: &Runtime,
    connections: &mut Connections,
    token: u64,
    plan: Plan,
    outcome: Result<Established, ConnectError>,
) {
    let id = plan.id;
    // SAFETY: setups are removed before their identifiers are freed.
    let known = unsafe { &mut *id.0 };
    match outcome {
        Ok(established) => {
            known.inner.stage = Stage::Connected;
            known.set_addresses(Some(established.local), Some(established.peer));
            if let Some(joined) = known.inner.pair.and_then(|number| connections.pairs.get(&number)) {
                // SAFETY: in the table, whose lock is held.
                unsafe { set_state(joined.pair, IBV_QPS_RTS) };
            }
            // A program that joins the queue pair by itself expects the response.
            let event = match known.abi.qp.is_null() {
                true => RDMA_CM_EVENT_CONNECT_RESPONSE,
                false => RDMA_CM_EVENT_ESTABLISHED,
            };
            let reads = of_connection(&established);
            let private_data = established.private_data;
            push(id, event, 0, Details { private_data, reads, listener: None });
        }
        Err(ConnectError::NeedsRevision2 { .. }) => {
            // Without a peer-to-peer setup, which the peer does not know.
            let options = ConnectOptions { peer_to_peer: false, revision: 1, ..plan.options };
            if let Err(error) = (Plan { options, ..plan }).start(runtime, connections, token) {
                fail(id, &error);
            }
        }
        Err(error) if is_refused(&error) && plan.since.elapsed() < REFUSED_MAX => {
            if let Err(error) = wait(runtime, connections, token, plan) {
                fail(id, &ConnectError::System { step: "wait for the peer", source: error });
            }
        }
        Err(error) => fail(id, &error),
    }
}

/// Whether no program listens on the port.
fn is_refused(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Tcp { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
}

/// Starts the timer of the next attempt.
fn wait(runtime: &Runtime, connections: &mut Connections, token: u64, plan: Plan) -> io::Result<()> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let once = Itimerspec { it_interval: Timespec::default(), it_value: REFUSED_INTERVAL };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
    runtime.helper.watch_setup(timer.as_fd(), token)?;
    connections.setups.insert(token, Setup::Waiting(timer, Box::new(plan)));
    Ok(())
}

fn fail(id: Handle<Id>, error: &ConnectError) {
    // SAFETY: setups are removed before their identifiers are freed.
    let known = unsafe { &mut (*id.0).inner };
    known.stage = Stage::Ended;
    if let Some(peer) = known.peer {
        sockets::note_failed(peer, error);
    }
    let code = code_of(error);
    let event = match code {
        libc::ECONNREFUSED => RDMA_CM_EVENT_REJECTED,
        libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH => RDMA_CM_EVENT_UNREACHABLE,
        _ => RDMA_CM_EVENT_CONNECT_ERROR,
    };
    let private_data = match error {
        ConnectError::Rejected { private_data, .. } => private_data.clone(),
        _ => Vec::new(),
    };
    push(id, event, -code, Details { private_data, ..Details::default() });
}
