//! Agent side of a verification: queries its kernel, opens flows and responds to them,
//! counts packets.

mod facts;
mod lookup;
mod observe;
mod open;
mod respond;

use std::{net::SocketAddr, time::Duration};

use clearstream_control::{Done, Registration, Service};
use clearstream_host::HostRoot;
use clearstream_schema::control::{Cookie, Failure, FailureKind};

use super::calls::{
    Close, Connect, Connected, Counters, Facts, Listen, Listening, Lookup, MOST_OBSERVED_FLOWS, Observation,
    Observe, Observed, PathMtu, PathMtuFound,
};
use observe::Observer;
use respond::Responder;

/// Bytes of the request of a flow, and of its response.
const MESSAGE_BYTES: usize = 256;
/// First bytes of a request and of a response.
const REQUEST: [u8; 4] = *b"CSRQ";
const RESPONSE: [u8; 4] = *b"CSRA";

/// State of an agent: responders and observations. Dropping it closes everything.
#[derive(Debug, Default)]
pub struct ProofAgent {
    responders: Vec<Responder>,
    observer: Option<Observer>,
    /// Observations that were not reported yet.
    observed: Option<Observation>,
}

impl Service for ProofAgent {
    fn register(calls: &mut Registration<Self>) {
        calls
            .on(|_, Facts {}, _| facts::read(&HostRoot::live()))
            .on(|_, call: Lookup, _| lookup::run(&call))
            .on(|agent, call: Listen, _| agent.listen(&call))
            .on(|_, call: Connect, _| open::run(&call).map(|results| Connected { results }))
            .on(|agent, call: Observe, _| agent.observe(&call).map(|()| Done {}))
            .on(|agent, Observed {}, _| agent.observed())
            .on(|_, Counters {}, _| Ok(clearstream_host::counters::read(&HostRoot::live())))
            .on(|_, call: PathMtu, _| path_mtu(&call))
            .on(|agent, Close {}, _| {
                *agent = Self::default();
                Ok(Done {})
            });
    }
}

impl ProofAgent {
    fn listen(&mut self, call: &Listen) -> Result<Listening, Failure> {
        let responder = Responder::open(call)?;
        let port = responder.port();
        self.responders.push(responder);
        Ok(Listening { port })
    }

    /// Starts to count packets.
    ///
    /// # Errors
    /// `Invalid` for an observation of nothing, `Unsupported` without
    /// `CAP_NET_RAW`.
    pub fn observe(&mut self, call: &Observe) -> Result<(), Failure> {
        // Two observers would count the same packets twice.
        (self.observer, self.observed) = (None, None);
        self.observer = Some(Observer::open(call)?);
        Ok(())
    }

    /// Ends the observation, or continues its report: what fits into one reply.
    ///
    /// # Errors
    /// `Invalid` without an observation, or after everything was reported.
    pub fn observed(&mut self) -> Result<Observation, Failure> {
        if let Some(observer) = self.observer.take() {
            self.observed = Some(observer.finish()?);
        }
        let Some(mut report) = self.observed.take() else {
            return Err(Failure::new(FailureKind::Invalid, "nothing is being observed on this host"));
        };
        if report.flows.len() > MOST_OBSERVED_FLOWS {
            let rest = report.flows.split_off(MOST_OBSERVED_FLOWS);
            let (lost_count, truncated) = (report.lost_count, report.truncated);
            self.observed = Some(Observation { flows: rest, lost_count, truncated, more: false });
            report.more = true;
        }
        Ok(report)
    }
}

fn path_mtu(search: &PathMtu) -> Result<PathMtuFound, Failure> {
    let (from, to): (SocketAddr, SocketAddr) = (search.source, search.destination);
    let timeout = Duration::from_millis(u64::from(search.timeout_ms.clamp(10, 5_000)));
    let found = clearstream_probe::path_mtu_from(from, to, &search.cookie, timeout)?;
    Ok(found.map_or_else(PathMtuFound::default, |found| PathMtuFound {
        path_bytes: Some(found.path_bytes),
        route_bytes: Some(found.route_bytes),
        icmp_bytes: found.icmp_bytes,
    }))
}

/// Message of a flow. The cookie is sent as its digits.
fn message(head: [u8; 4], cookie: &Cookie) -> Result<[u8; MESSAGE_BYTES], Failure> {
    let digits: &[u8; 32] = cookie
        .0
        .as_bytes()
        .try_into()
        .ok()
        .filter(|digits: &&[u8; 32]| digits.iter().all(u8::is_ascii_hexdigit))
        .ok_or_else(|| {
            Failure::new(FailureKind::Invalid, "the proof's cookie must be 32 hexadecimal digits")
        })?;
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[..4].copy_from_slice(&head);
    bytes[4..36].copy_from_slice(digits);
    Ok(bytes)
}

/// Whether two messages are equal, compared in constant time, so that timing reveals
/// nothing to a stranger.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests;
