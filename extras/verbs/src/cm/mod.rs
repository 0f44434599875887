//! librdmacm: identifiers, events, connection setup.
//!
//! # Safety
//!
//! The contract of identifiers is [that of this library](crate#safety), and: one thread at a time calls with an
//! identifier, as its members (`event`, `qp`, `pd`) are written without a lock. The channel of an identifier outlives it.
//! The library's own threads follow an identifier, or a queue pair that is joined to it, under the lock of the
//! [`Connections`] alone.

pub mod connect;
pub mod endpoint;
pub mod event;
pub mod id;
pub mod option;
pub mod resolve;
pub mod setup;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use clearstream_iwarp::{rnic::QueuePair, verbs::State};

use crate::{
    abi::{RDMA_CM_EVENT_DISCONNECTED, ibv_cq, ibv_srq},
    handle::Handle,
    helper::Watched,
    queue_pair::Pair,
    report::notice,
};

use self::{
    event::{Details, EventChannel, push},
    id::{Id, Stage},
    setup::Setup,
};

/// Destroyed channels that are kept; more are freed at once.
const RETIRED_MAX: usize = 64;
/// Maximum time that a destroyed queue pair has for a graceful close.
const LINGER: Duration = Duration::from_secs(10);

/// A queue pair and the identifier that it is joined to.
pub struct Joined {
    /// Queue pair of the program.
    pub pair: Handle<Pair>,
    /// Identifier of its connection.
    pub id: Option<Handle<Id>>,
}

/// Objects of the program that events refer to. Each entry is removed before
/// its object is freed.
#[derive(Default)]
pub struct Connections {
    /// Queue pairs by number.
    pub pairs: HashMap<u32, Joined>,
    /// Completion queues by token.
    pub queues: HashMap<u64, Handle<ibv_cq>>,
    /// Shared receive queues by token.
    pub shared: HashMap<u64, Handle<ibv_srq>>,
    /// Listeners and setups in progress by token of the helper.
    pub setups: HashMap<u64, Setup>,
    /// Queue pairs whose connections ended before the program polled their
    /// messages.
    held: Vec<(u32, Instant)>,
    lingering: Vec<Lingering>,
    /// Queue pairs of responders whose initiators may never send a first message, and whether their sends waited for it at
    /// the last sweep.
    responders: HashMap<u32, bool>,
    /// Destroyed channels, freed by the second sweep from their destruction on.
    #[allow(clippy::vec_box, reason = "threads of the program may still read the addresses")]
    retired: [Vec<Box<EventChannel>>; 2],
}

/// A destroyed queue pair whose connection closes.
struct Lingering {
    pair: QueuePair,
    /// Its completion queues, which move its bytes.
    queues: [Arc<Watched>; 2],
    since: Instant,
}

impl Connections {
    /// Adds a queue pair.
    pub fn add_pair(&mut self, number: u32, pair: Handle<Pair>) {
        self.pairs.insert(number, Joined { pair, id: None });
    }

    /// Removes a queue pair that is destroyed, which ends its connection.
    pub fn remove_pair(&mut self, number: u32) {
        let Some(Joined { id: Some(id), pair }) = self.pairs.remove(&number) else { return };
        // SAFETY: in the table, whose lock is held.
        let known = unsafe { &mut *id.0 };
        known.inner.pair = None;
        if known.abi.qp == pair.0.cast() {
            known.abi.qp = std::ptr::null_mut();
        }
        match known.inner.stage {
            Stage::Connecting(token) => drop(self.setups.remove(&token)),
            Stage::Connected => push(id, RDMA_CM_EVENT_DISCONNECTED, 0, Details::default()),
            Stage::Accepting(_) => {}
            _ => return,
        }
        known.inner.stage = Stage::Ended;
    }

    /// Holds the end of a connection back.
    pub fn hold(&mut self, pair: u32) {
        if !self.held.iter().any(|(held, _)| *held == pair) {
            self.hold_since(pair, Instant::now());
        }
    }

    /// The same, since an earlier time.
    pub fn hold_since(&mut self, pair: u32, since: Instant) {
        self.held.push((pair, since));
    }

    /// Takes the ends that are held back.
    pub fn held(&mut self) -> Vec<(u32, Instant)> {
        std::mem::take(&mut self.held)
    }

    /// Whether an end is held back.
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Notes a responder without a peer-to-peer setup: it may not send before the initiator has (RFC 5044, section 7.1.2).
    pub fn add_responder(&mut self, pair: u32) {
        self.responders.insert(pair, false);
    }

    /// The initiator's first message arrived, or never will.
    pub fn remove_responder(&mut self, pair: u32) {
        self.responders.remove(&pair);
    }

    /// Lets responders send whose sends have waited from one sweep to the next: programs that send first as server rely on
    /// initiators which are ready for that, as those of siw are.
    pub fn release_held_back(&mut self) {
        let Self { responders, pairs, .. } = self;
        responders.retain(|number, has_waited| {
            let Some(joined) = pairs.get(number) else { return false };
            // SAFETY: in the table, whose lock is held.
            let pair = unsafe { &(*joined.pair.0).pair };
            let waits = pair.is_held_back();
            if waits && *has_waited {
                notice(
                    "a peer that made no peer-to-peer setup has sent nothing, so that this side sends first, which RFC 5044 \
                     forbids: connect with MPA revision 2 and peer-to-peer, or let the initiator send first",
                );
                pair.send_first();
                return false;
            }
            *has_waited = waits;
            true
        });
    }

    /// Keeps a destroyed queue pair until its connection is closed.
    pub fn linger(&mut self, pair: QueuePair, queues: [Arc<Watched>; 2]) {
        self.lingering.push(Lingering { pair, queues, since: Instant::now() });
    }

    /// Keeps a destroyed channel for a moment.
    pub fn retire(&mut self, channel: Box<EventChannel>) {
        if self.retired[0].len() < RETIRED_MAX {
            self.retired[0].push(channel);
        }
    }

    /// Whether a completion queue is still needed by a destroyed queue pair.
    pub fn is_lingering(&self, token: u64) -> bool {
        self.lingering.iter().any(|lingering| lingering.queues.iter().any(|queue| queue.token == token))
    }

    /// Frees channels that were destroyed before the last sweep, and what [`Connections::drop_closed`] does.
    pub fn sweep(&mut self) -> Vec<u64> {
        self.retired.swap(0, 1);
        self.retired[0].clear();
        self.drop_closed()
    }

    /// Drops destroyed queue pairs whose connections are closed; returns the
    /// tokens of destroyed completion queues that nothing needs any more.
    pub fn drop_closed(&mut self) -> Vec<u64> {
        let is_over = |lingering: &mut Lingering| {
            !matches!(lingering.pair.state(), State::Rts | State::Closing)
                || lingering.since.elapsed() >= LINGER
        };
        let over: Vec<_> = self.lingering.extract_if(.., is_over).collect();
        let tokens = over.iter().flat_map(|lingering| lingering.queues.iter().map(|queue| queue.token));
        tokens.filter(|token| !self.queues.contains_key(token) && !self.is_lingering(*token)).collect()
    }
}
