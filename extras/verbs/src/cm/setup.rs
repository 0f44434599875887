//! Connection setups in progress, advanced by the helper thread.

use std::{
    ffi::c_int,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use clearstream_iwarp::{
    rnic::QueuePair,
    verbs::{ConnectError, ConnectOptions, Connecting, Established, Incoming, Listener},
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
    runtime::Runtime,
};

use super::{
    Connections,
    event::{Details, push},
    id::{Id, Stage, allocate_id},
};

/// What the helper advances.
pub enum Setup {
    /// A listener and its identifier.
    Listening(Arc<Listener>, Handle<Id>),
    /// A setup of this side.
    Connecting(Box<Attempt>),
}

impl Setup {
    /// Returns the descriptor that the helper watches.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listening(listener, _) => listener.as_fd(),
            Self::Connecting(attempt) => attempt.descriptor(),
        }
    }
}

/// A setup of this side.
pub struct Attempt {
    id: Handle<Id>,
    pair: QueuePair,
    peer: SocketAddr,
    options: ConnectOptions,
    connecting: Connecting,
}

impl Attempt {
    /// Starts a setup.
    ///
    /// # Errors
    /// As for a queue pair's `start_connect`.
    pub fn start(
        id: Handle<Id>,
        pair: QueuePair,
        peer: SocketAddr,
        options: ConnectOptions,
    ) -> Result<Self, ConnectError> {
        let connecting = pair.start_connect(peer, &options)?;
        Ok(Self { id, pair, peer, options, connecting })
    }

    /// Returns the descriptor that the helper watches.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.connecting.as_fd()
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
        }
        Some(Setup::Connecting(attempt)) => {
            let outcome = attempt.connecting.advance();
            let done = match outcome {
                Ok(None) => return,
                Ok(Some(established)) => Ok(established),
                Err(error) => Err(error),
            };
            let Some(Setup::Connecting(attempt)) = connections.setups.remove(&token) else { return };
            runtime.helper.unwatch_setup(attempt.descriptor());
            conclude(runtime, &mut connections, token, *attempt, done);
        }
        None => {}
    }
}

/// A peer requests a connection.
fn request(listener: Handle<Id>, incoming: Incoming) {
    // SAFETY: the listener is in the table, whose lock is held.
    let parent = unsafe { &(*listener.0).abi };
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
    known.inner.stage = Stage::Requested(Box::new(incoming));
    push(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, details);
}

/// A setup of this side is over.
fn conclude(
    runtime: &Runtime,
    connections: &mut Connections,
    token: u64,
    attempt: Attempt,
    outcome: Result<Established, ConnectError>,
) {
    let id = attempt.id;
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
            let limit = |reads: u16| reads.min(READS_MAX.into()) as u8;
            let reads = (limit(established.ird), limit(established.ord));
            let private_data = established.private_data;
            push(id, event, 0, Details { private_data, reads, listener: None });
        }
        Err(ConnectError::NeedsRevision2 { .. }) => retry(runtime, connections, token, attempt),
        Err(error) => fail(id, &error),
    }
}

/// The peer does not know revision 2: without a peer-to-peer setup.
fn retry(runtime: &Runtime, connections: &mut Connections, token: u64, attempt: Attempt) {
    let Attempt { id, pair, peer, options, connecting } = attempt;
    // The queue pair is idle again.
    drop(connecting);
    let options = ConnectOptions { peer_to_peer: false, revision: 1, ..options };
    match Attempt::start(id, pair, peer, options) {
        Ok(attempt) if runtime.helper.watch_setup(attempt.descriptor(), token).is_ok() => {
            connections.setups.insert(token, Setup::Connecting(Box::new(attempt)));
        }
        Ok(_) => fail(id, &ConnectError::System { step: "watch a setup", source: io::Error::other("epoll") }),
        Err(error) => fail(id, &error),
    }
}

fn fail(id: Handle<Id>, error: &ConnectError) {
    // SAFETY: setups are removed before their identifiers are freed.
    unsafe { (*id.0).inner.stage = Stage::Ended };
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
