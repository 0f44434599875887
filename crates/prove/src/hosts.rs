//! The agents of a verification: single and parallel calls.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use clearstream_control::{Call, Peer, PeerError};
use clearstream_flow::FlowError;
use clearstream_schema::{control::FailureKind, failure::Classified};

/// A verification failed.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// An agent was lost or rejected a call, or the verification was interrupted.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A bulk flow lost an agent.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// There is nothing to prove.
    #[error("{0}")]
    Nothing(String),
}

impl Classified for ProofError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Peer(error) => error.failure_kind(),
            Self::Flow(error) => error.failure_kind(),
            Self::Nothing(_) => FailureKind::Invalid,
        }
    }
}

/// Agents by host name.
pub(super) struct Hosts<'a> {
    pub(super) peers: &'a mut BTreeMap<String, Peer>,
    pub(super) stop: &'a AtomicBool,
}

/// Replies of each host to its calls, or its first error.
pub(super) type Replies<R> = Vec<(String, Result<Vec<R>, ProofError>)>;

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

    pub(super) fn call<C: Call>(&mut self, host: &str, call: &C) -> Result<C::Reply, ProofError> {
        let stop = self.stop;
        Ok(self.peer(host)?.call_unless(call, stop)?)
    }

    /// Calls many hosts in parallel; the calls of each host are made in order.
    pub(super) fn call_all<C>(&mut self, mut calls: BTreeMap<String, Vec<C>>) -> Replies<C::Reply>
    where
        C: Call + Send,
        C::Reply: Send,
    {
        let stop = self.stop;
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .peers
                .iter_mut()
                .filter_map(|(name, peer)| Some((name, peer, calls.remove(name)?)))
                .map(|(name, peer, calls)| {
                    let all = move || {
                        calls
                            .iter()
                            .map(|call| Ok(peer.call_unless(call, stop)?))
                            .collect::<Result<Vec<_>, ProofError>>()
                    };
                    (name.clone(), scope.spawn(all))
                })
                .collect();
            threads
                .into_iter()
                .map(|(name, thread)| {
                    let replies = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    (name, replies)
                })
                .collect()
        })
    }
}

/// The reason if only this host rejected a call: it lacks a capability or an address.
/// A lost agent or an interruption remains an error.
pub(super) fn refusal(error: ProofError) -> Result<String, ProofError> {
    match error {
        ProofError::Peer(PeerError::Refused { failure, .. }) => Ok(failure.message),
        error => Err(error),
    }
}
