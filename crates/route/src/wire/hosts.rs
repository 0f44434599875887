//! The agents of a proof, asked one by one or many at once.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use clearstream_control::{Peer, PeerError};
use clearstream_flow::FlowError;
use clearstream_schema::{
    control::{Reply, Request},
    wire::{RouteReply, RouteRequest},
};

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// An agent was lost or refused, or the proof was interrupted.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A bulk flow lost an agent.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// An agent answered a request with something that is no answer to it.
    #[error("{name}: unexpected answer to {request}; do all hosts run the same version?")]
    Unexpected {
        /// The agent.
        name: String,
        /// What it was asked.
        request: &'static str,
    },
    /// There is nothing to prove.
    #[error("{0}")]
    Nothing(String),
}

/// Agents by host name.
pub(super) struct Hosts<'a> {
    pub(super) peers: &'a mut BTreeMap<String, Peer>,
    pub(super) stop: &'a AtomicBool,
}

/// What one host was asked, and what it answered; the first failure ends it.
pub(super) type Answers = Vec<(String, Result<Vec<RouteReply>, ProofError>)>;

impl Hosts<'_> {
    fn stopped(name: &str) -> ProofError {
        PeerError::Stopped { name: name.to_owned(), reason: "the proof was interrupted".to_owned() }.into()
    }

    pub(super) fn peer(&mut self, host: &str) -> Result<&mut Peer, ProofError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Self::stopped(host));
        }
        let missing = || ProofError::Nothing(format!("no agent was started on {host}"));
        self.peers.get_mut(host).ok_or_else(missing)
    }

    /// Two different agents.
    pub(super) fn two(&mut self, one: &str, other: &str) -> Result<(&mut Peer, &mut Peer), ProofError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Self::stopped(one));
        }
        let (mut first, mut second) = (None, None);
        for (name, peer) in self.peers.iter_mut() {
            if name == one {
                first = Some(peer);
            } else if name == other {
                second = Some(peer);
            }
        }
        match (first, second) {
            (Some(first), Some(second)) => Ok((first, second)),
            _ => Err(ProofError::Nothing(format!("no agents were started on {one} and {other}"))),
        }
    }

    pub(super) fn ask(&mut self, host: &str, request: RouteRequest) -> Result<RouteReply, ProofError> {
        let stop = self.stop;
        ask(self.peer(host)?, request, stop)
    }

    /// Asks many hosts at the same time, each its requests in order.
    pub(super) fn ask_all(&mut self, mut requests: BTreeMap<String, Vec<RouteRequest>>) -> Answers {
        let stop = self.stop;
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .peers
                .iter_mut()
                .filter_map(|(name, peer)| Some((name, peer, requests.remove(name)?)))
                .map(|(name, peer, requests)| {
                    let all = move || requests.into_iter().map(|request| ask(peer, request, stop)).collect();
                    (name.clone(), scope.spawn(all))
                })
                .collect();
            threads
                .into_iter()
                .map(|(name, thread)| {
                    let answers = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    (name, answers)
                })
                .collect()
        })
    }
}

fn ask(peer: &mut Peer, request: RouteRequest, stop: &AtomicBool) -> Result<RouteReply, ProofError> {
    match peer.request_unless(Request::Route(request), stop)? {
        Reply::Route(reply) => Ok(reply),
        _ => Err(unexpected(peer.name(), "route")),
    }
}

pub(super) fn unexpected(name: &str, request: &'static str) -> ProofError {
    ProofError::Unexpected { name: name.to_owned(), request }
}

/// Whether only this host's part failed: it lacks a capability or an address.
/// An agent that was lost, or an interruption, ends the proof.
pub(super) fn refusal(error: ProofError) -> Result<String, ProofError> {
    match error {
        ProofError::Peer(PeerError::Refused { failure, .. }) => Ok(failure.message),
        error => Err(error),
    }
}
