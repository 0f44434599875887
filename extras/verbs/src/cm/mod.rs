//! librdmacm: identifiers, events, connection setup.

pub mod connect;
pub mod endpoint;
pub mod event;
pub mod id;
pub mod option;
pub mod resolve;
pub mod setup;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use clearstream_iwarp::{rnic::QueuePair, verbs::State};

use crate::{
    abi::{ibv_cq, ibv_srq},
    handle::Handle,
    queue_pair::Pair,
};

use self::{id::Id, setup::Setup};

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
    lingering: Vec<(QueuePair, Instant)>,
}

impl Connections {
    /// Adds a queue pair.
    pub fn add_pair(&mut self, number: u32, pair: Handle<Pair>) {
        self.pairs.insert(number, Joined { pair, id: None });
    }

    /// Removes a queue pair that is destroyed.
    pub fn remove_pair(&mut self, number: u32) {
        let Some(Joined { id: Some(id), pair }) = self.pairs.remove(&number) else { return };
        // SAFETY: in the table, whose lock is held.
        let id = unsafe { &mut *id.0 };
        id.inner.pair = None;
        if id.abi.qp == pair.0.cast() {
            id.abi.qp = std::ptr::null_mut();
        }
        if let id::Stage::Connecting(token) = id.inner.stage {
            self.setups.remove(&token);
            id.inner.stage = id::Stage::Ended;
        }
    }

    /// Keeps a destroyed queue pair until its connection is closed.
    pub fn linger(&mut self, pair: QueuePair) {
        self.sweep();
        self.lingering.push((pair, Instant::now()));
    }

    /// Drops destroyed queue pairs whose connections are closed.
    pub fn sweep(&mut self) {
        self.lingering.retain(|(pair, since)| {
            matches!(pair.state(), State::Rts | State::Closing) && since.elapsed() < LINGER
        });
    }
}
