//! What an agent does for a proof: asks its kernel, opens and answers flows,
//! counts what passes.

mod answer;
mod facts;
mod lookup;
mod observe;
mod open;

use std::{net::SocketAddr, time::Duration};

use clearstream_host::HostRoot;
use clearstream_schema::{
    control::{Cookie, Failure, FailureKind},
    wire::{MOST_OBSERVED_FLOWS, Observation, RouteReply, RouteRequest, WirePathMtu, WirePathMtuFound},
};

use answer::Answerer;
use observe::Observer;

/// Bytes of the question of a flow, and of its answer.
const MESSAGE_BYTES: usize = 256;
/// First bytes of a question and of an answer.
const QUESTION: [u8; 4] = *b"CSRQ";
const ANSWER: [u8; 4] = *b"CSRA";

/// An agent's state: what is open for a proof. Dropping it closes everything.
#[derive(Debug, Default)]
pub struct WireAgent {
    answerers: Vec<Answerer>,
    observer: Option<Observer>,
    /// What it saw and has not told yet.
    observed: Option<Observation>,
}

impl WireAgent {
    /// Does what a controller asks.
    ///
    /// # Errors
    /// `Invalid` for a request that makes no sense on this host, `Unsupported`
    /// where a capability is missing, `InUse` for a port that is taken.
    pub fn handle(&mut self, request: RouteRequest) -> Result<RouteReply, Failure> {
        match request {
            RouteRequest::Facts => facts::read(&HostRoot::live()).map(RouteReply::Facts),
            RouteRequest::Lookup(lookup) => lookup::look_up(&lookup).map(RouteReply::LookedUp),
            RouteRequest::Listen(listen) => {
                let answerer = Answerer::open(&listen)?;
                let port = answerer.port();
                self.answerers.push(answerer);
                Ok(RouteReply::Listening { port })
            }
            RouteRequest::Connect(flows) => open::run(&flows).map(RouteReply::Connected),
            RouteRequest::Observe(what) => {
                // Two at a time would count the same packets for two.
                (self.observer, self.observed) = (None, None);
                self.observer = Some(Observer::open(&what)?);
                Ok(RouteReply::Done)
            }
            RouteRequest::Observed => self.told().map(RouteReply::Observed),
            RouteRequest::Counters => {
                Ok(RouteReply::Counters(clearstream_host::counters::read(&HostRoot::live())))
            }
            RouteRequest::PathMtu(search) => path_mtu(&search).map(RouteReply::PathMtu),
            RouteRequest::Close => {
                *self = Self::default();
                Ok(RouteReply::Done)
            }
        }
    }
}

impl WireAgent {
    /// Ends the observation, or goes on telling: what fits into one answer.
    fn told(&mut self) -> Result<Observation, Failure> {
        if let Some(observer) = self.observer.take() {
            self.observed = Some(observer.finish()?);
        }
        let Some(mut told) = self.observed.take() else {
            return Err(failure(FailureKind::Invalid, "nothing is being observed on this host"));
        };
        if told.flows.len() > MOST_OBSERVED_FLOWS {
            let rest = told.flows.split_off(MOST_OBSERVED_FLOWS);
            let (lost_count, truncated) = (told.lost_count, told.truncated);
            self.observed = Some(Observation { flows: rest, lost_count, truncated, more: false });
            told.more = true;
        }
        Ok(told)
    }
}

fn path_mtu(search: &WirePathMtu) -> Result<WirePathMtuFound, Failure> {
    let (from, to): (SocketAddr, SocketAddr) = (search.source, search.destination);
    let patience = Duration::from_millis(u64::from(search.patience_ms.clamp(10, 5_000)));
    let found = clearstream_probe::path_mtu_from(from, to, &search.cookie, patience)?;
    Ok(found.map_or_else(WirePathMtuFound::default, |found| WirePathMtuFound {
        path_bytes: Some(found.path_bytes),
        route_bytes: Some(found.route_bytes),
        told_bytes: found.told_bytes,
    }))
}

fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into() }
}

/// What a flow says first. The cookie is sent as its digits.
fn message(head: [u8; 4], cookie: &Cookie) -> Result<[u8; MESSAGE_BYTES], Failure> {
    let digits: &[u8; 32] = cookie
        .0
        .as_bytes()
        .try_into()
        .ok()
        .filter(|digits: &&[u8; 32]| digits.iter().all(u8::is_ascii_hexdigit))
        .ok_or_else(|| failure(FailureKind::Invalid, "the proof's cookie must be 32 hexadecimal digits"))?;
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[..4].copy_from_slice(&head);
    bytes[4..36].copy_from_slice(digits);
    Ok(bytes)
}

/// Whether two messages are the same, compared without stopping at the first
/// difference, so that the time taken tells a stranger nothing.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests;
