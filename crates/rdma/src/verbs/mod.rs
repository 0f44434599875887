//! Timing of single calls of the verbs interface.
//!
//! A sample is the mean of consecutive calls: one where the call is long or
//! cannot be repeated at once, more where the clock would cost as much as the
//! call. Setup and cleanup around the calls are not timed. [`connected`] has
//! the calls that need a peer, [`peer`] is that peer.

mod connected;
mod document;
pub(crate) mod peer;

use std::{
    hint::black_box,
    net::SocketAddr,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    memory::{self, Access, MemoryError},
    verbs::{
        CompletionChannel, ProtectionDomain, Region,
        raw::{CompletionQueue, QueuePair, QueuePairOptions, ReceiveRequest},
    },
};
use rustix::event::epoll;

pub use document::{VERBS_SUMMARY_SCHEMA, VerbsCall, VerbsConfig, VerbsSample, VerbsSummary};

use crate::{data_queue_pairs::open_rnic, error::RdmaError, negotiation::Cookie, samples::nanoseconds};

/// Maximum number of samples of one trial: a reply has them all, in one frame.
const MAX_COUNT: u32 = 10_000;
/// Maximum size of registered memory.
const MAX_MEMORY_BYTES: u64 = 1 << 30;
/// Page size: memory is in use when each of its pages was written to.
const PAGE_BYTES: usize = 4096;
/// Queue depth of a queue pair of a timed call, in each direction.
const DEPTH: u32 = 128;
/// Calls per sample, where a call takes no longer than some clock readings.
const SHORT_CALLS: u32 = 16;
/// Number of clock readings of which the closest two give its cost.
const CLOCK_READINGS: u32 = 1000;

/// Validates a configuration without side effect.
///
/// # Errors
/// [`RdmaError::Option`] with a suggested correction.
pub(crate) fn validate(config: &VerbsConfig) -> Result<(), RdmaError> {
    let fail = |reason: String| Err(RdmaError::Option(reason));
    if config.count == 0 || config.count > MAX_COUNT || config.warm_up_count > MAX_COUNT {
        return fail(format!(
            "{} samples: choose 1 to {MAX_COUNT}, and no more for the warm-up",
            config.count
        ));
    }
    let most = match config.call {
        VerbsCall::PostSend => u64::from(peer::MESSAGE_BYTES),
        _ => MAX_MEMORY_BYTES,
    };
    if config.size.0 == 0 || config.size.0 > most {
        return fail(format!("a size of {}: choose 1 B to {most} B", config.size));
    }
    Ok(())
}

/// Times a call while `should_continue` returns true. Calls that connect need a server.
///
/// # Errors
/// Invalid options, no connection, an unavailable resource (a core, memory that
/// cannot be pinned).
pub(crate) fn time(
    config: &VerbsConfig,
    server: Option<SocketAddr>,
    cookie: Cookie,
    should_continue: &dyn Fn() -> bool,
) -> Result<VerbsSummary, RdmaError> {
    validate(config)?;
    let mut samples = Samples::new(config, should_continue);
    match (config.call, server) {
        (
            VerbsCall::PostSend | VerbsCall::Connect | VerbsCall::PollEmpty | VerbsCall::PollNonEmpty,
            server,
        ) => {
            let server = server
                .ok_or_else(|| RdmaError::Option("the call connects, and no server was named".to_owned()))?;
            connected::time(config, server, cookie, &mut samples)?;
        }
        (VerbsCall::Open | VerbsCall::Close, _) => time_rnic(config, &mut samples)?,
        (VerbsCall::RegisterMemory | VerbsCall::DeregisterMemory, _) => time_memory(config, &mut samples)?,
        _ => time_objects(config, &mut samples)?,
    }
    Ok(samples.summary())
}

/// Samples of one trial.
pub(crate) struct Samples<'a> {
    config: &'a VerbsConfig,
    should_continue: &'a dyn Fn() -> bool,
    calls: u32,
    warm_up_left: u32,
    times_ns: Vec<f64>,
}

impl<'a> Samples<'a> {
    fn new(config: &'a VerbsConfig, should_continue: &'a dyn Fn() -> bool) -> Self {
        Self { config, should_continue, calls: 1, warm_up_left: config.warm_up_count, times_ns: Vec::new() }
    }

    /// Sets the number of calls per sample for further samples.
    fn of_calls(&mut self, calls: u32) {
        self.calls = calls;
    }

    /// Whether more samples are needed.
    fn are_needed(&self) -> bool {
        self.times_ns.len() < self.config.count as usize && (self.should_continue)()
    }

    /// Adds the total time of one sample's calls.
    fn add(&mut self, time: Duration) {
        if self.warm_up_left > 0 {
            self.warm_up_left -= 1;
        } else if self.times_ns.len() < self.config.count as usize {
            self.times_ns.push(nanoseconds(time) as f64 / f64::from(self.calls));
        }
    }

    fn summary(self) -> VerbsSummary {
        VerbsSummary {
            requested: self.config.clone(),
            calls_per_sample_count: self.calls,
            clock_ns: clock_ns(),
            complete: self.times_ns.len() == self.config.count as usize,
            times_ns: self.times_ns,
            notices: Vec::new(),
        }
    }
}

/// Returns the call's result and its time.
fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let value = black_box(call());
    (value, begin.elapsed())
}

/// Returns the least time between two clock readings.
fn clock_ns() -> u64 {
    let reading = |_| timed(|| ()).1;
    (0..CLOCK_READINGS).map(reading).min().map_or(0, nanoseconds)
}

/// Times opening and closing an RNIC.
fn time_rnic(config: &VerbsConfig, samples: &mut Samples<'_>) -> Result<(), RdmaError> {
    let open = || open_rnic(config.progress, config.core);
    while samples.are_needed() {
        let (rnic, opening) = timed(open);
        let rnic = rnic?;
        let ((), closing) = timed(|| drop(rnic));
        samples.add(if config.call == VerbsCall::Open { opening } else { closing });
    }
    Ok(())
}

/// Times calls that create an object of an open RNIC, and posting a receive.
fn time_objects(config: &VerbsConfig, samples: &mut Samples<'_>) -> Result<(), RdmaError> {
    let rnic = open_rnic(config.progress, config.core)?;
    let domain = ProtectionDomain::new(&rnic);
    let completions = CompletionQueue::new(&rnic, 4 * DEPTH, 0, None)?;
    match config.call {
        VerbsCall::RegisterEventHandler => {
            while samples.are_needed() {
                let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
                let (added, time) = timed(|| {
                    epoll::add(&epoll, rnic.events(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                });
                added.map_err(system)?;
                samples.add(time);
            }
        }
        VerbsCall::RegisterCompletionHandler => {
            while samples.are_needed() {
                let (made, time) = timed(|| {
                    let channel = CompletionChannel::new()?;
                    let queue = CompletionQueue::new(&rnic, DEPTH, 0, Some(&channel))?;
                    Ok::<_, RdmaError>((channel, queue))
                });
                made?;
                samples.add(time);
            }
        }
        VerbsCall::AllocateDomain => {
            samples.of_calls(SHORT_CALLS);
            while samples.are_needed() {
                let domains = || [(); SHORT_CALLS as usize].map(|()| ProtectionDomain::new(&rnic));
                let (_made, time) = timed(domains);
                samples.add(time);
            }
        }
        VerbsCall::CreateQueuePair => {
            while samples.are_needed() {
                let (made, time) = timed(|| QueuePair::new(&domain, &options(&completions)));
                made?;
                samples.add(time);
            }
        }
        _ => time_receives(&domain, &completions, samples)?,
    }
    Ok(())
}

/// Times posting receives to queue pairs that are not connected.
fn time_receives(
    domain: &ProtectionDomain,
    completions: &CompletionQueue,
    samples: &mut Samples<'_>,
) -> Result<(), RdmaError> {
    let memory = Region::new(domain, PAGE_BYTES, Access::LOCAL_WRITE)?;
    let requests = || (0..u64::from(SHORT_CALLS)).map(|id| receive_request(&memory, id)).collect::<Vec<_>>();
    samples.of_calls(SHORT_CALLS);
    while samples.are_needed() {
        let queue_pair = QueuePair::new(domain, &options(completions))?;
        for _ in 0..DEPTH / SHORT_CALLS {
            let requests = requests();
            let (posted, time) =
                timed(|| requests.into_iter().try_for_each(|request| queue_pair.post_receive(request)));
            posted.map_err(|error| RdmaError::Fault(error.to_string()))?;
            samples.add(time);
        }
    }
    Ok(())
}

fn receive_request(memory: &Region, id: u64) -> ReceiveRequest {
    ReceiveRequest { id, segments: [memory.segment(0, PAGE_BYTES as u32)].into_iter().collect() }
}

fn options(completions: &CompletionQueue) -> QueuePairOptions<'_> {
    let mut options = QueuePairOptions::new(completions);
    (options.send_depth, options.receive_depth) = (DEPTH, DEPTH);
    options
}

/// Times registering and deregistering memory that is in use.
fn time_memory(config: &VerbsConfig, samples: &mut Samples<'_>) -> Result<(), RdmaError> {
    let rnic = open_rnic(config.progress, config.core)?;
    let domain = ProtectionDomain::new(&rnic);
    let region = memory::Region::new(config.size.0 as usize)?;
    for at in (0..region.len()).step_by(PAGE_BYTES) {
        region.write(at, &[1]);
    }
    let table = rnic.memory();
    while samples.are_needed() {
        let (stag, registering) = timed(|| -> Result<_, MemoryError> {
            let memory = if config.pin { region.memory().pin()? } else { region.memory() };
            table.register(domain.id(), memory, Access::REMOTE_READ, 0)
        });
        let stag = stag?;
        let (gone, deregistering) = timed(|| table.deregister(stag));
        gone?;
        samples.add(if config.call == VerbsCall::RegisterMemory { registering } else { deregistering });
    }
    Ok(())
}

fn system(error: rustix::io::Errno) -> RdmaError {
    RdmaError::Verbs(clearstream_iwarp::verbs::VerbsError::System {
        step: "event handler",
        source: error.into(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_a_peer_are_timed_as_often_as_requested() {
        use VerbsCall::{
            AllocateDomain, Close, CreateQueuePair, DeregisterMemory, Open, PostReceive,
            RegisterCompletionHandler, RegisterEventHandler, RegisterMemory,
        };
        for call in [
            Open,
            Close,
            RegisterEventHandler,
            RegisterCompletionHandler,
            AllocateDomain,
            CreateQueuePair,
            PostReceive,
            RegisterMemory,
            DeregisterMemory,
        ] {
            let config = VerbsConfig { call, count: 20, warm_up_count: 3, ..VerbsConfig::default() };
            let summary = time(&config, None, [0; 16], &|| true).unwrap();
            assert_eq!((summary.times_ns.len(), summary.complete), (20, true), "{call:?}");
            assert!(summary.times_ns.iter().all(|ns| *ns > 0.0), "{call:?}: {:?}", summary.times_ns);
            assert!(!call.connects());
        }
    }

    #[test]
    fn a_trial_that_is_stopped_is_not_complete_and_invalid_options_are_named() {
        let config = VerbsConfig::default();
        assert!(!time(&config, None, [0; 16], &|| false).unwrap().complete);
        let error = |config: &VerbsConfig| time(config, None, [0; 16], &|| true).unwrap_err().to_string();
        assert!(error(&VerbsConfig { count: 0, ..config.clone() }).contains("choose 1 to"));
        let large =
            VerbsConfig { call: VerbsCall::PostSend, size: clearstream_schema::ByteCount(1 << 20), ..config };
        assert!(error(&large).contains("choose 1 B to 4096 B"));
        let alone = VerbsConfig { call: VerbsCall::Connect, ..VerbsConfig::default() };
        assert!(error(&alone).contains("no server was named"));
    }
}
