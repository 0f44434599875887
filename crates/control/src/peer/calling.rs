//! Calls to an agent, and how long their replies are waited for.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_sys::interruption;

use super::{Peer, WAIT_STEP};
use crate::{
    call::Call,
    error::PeerError,
    link::Next,
    message::{Body, Outcome},
    session::Incoming,
};

/// A step that takes longer than this was not waited for: this process did not run meanwhile (stopped, starved).
const STEP_MAX: Duration = Duration::from_secs(1);
/// Time for further calls (to stop what was started) to an agent that did not reply to one.
pub(super) const LAST_CALLS_WITHIN: Duration = Duration::from_secs(2);
/// The same to an agent that replies, when the command's own time is over.
pub(super) const OVERTIME: Duration = Duration::from_secs(5);

impl Peer {
    /// Bounds all calls from now on by the time that the whole command has: the reply to one that is pending then, or
    /// made later, is waited for a few seconds.
    pub fn bound(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    /// Calls the agent and waits for its reply for [`Call::reply_within`]. Events received meanwhile are kept for
    /// [`Peer::next_event`].
    ///
    /// # Errors
    /// [`PeerError::Refused`] with the agent's reason, [`PeerError::Skew`] for a
    /// reply of another version, [`PeerError::Unanswered`] without a reply, [`PeerError::Stopped`] when a person asked
    /// this process to stop and the time for wrapping up is over, else how it was lost.
    pub fn call<C: Call>(&mut self, call: &C) -> Result<C::Reply, PeerError> {
        self.call_unless(call, &AtomicBool::new(false))
    }

    /// As [`Peer::call`], but returns when `stop` is set. The agent continues
    /// the call, and its reply is discarded.
    ///
    /// # Errors
    /// As [`Peer::call`], and [`PeerError::Stopped`].
    pub fn call_unless<C: Call>(&mut self, call: &C, stop: &AtomicBool) -> Result<C::Reply, PeerError> {
        self.call_within(call, call.reply_within(), stop)
    }

    /// As [`Peer::call_unless`] with another limit, which depends on more than the call knows.
    ///
    /// # Errors
    /// As [`Peer::call_unless`].
    pub fn call_within<C: Call>(
        &mut self,
        call: &C,
        within: Duration,
        stop: &AtomicBool,
    ) -> Result<C::Reply, PeerError> {
        let body = Body::of(call).map_err(|error| self.invalid(error.to_string()))?;
        let reply = self.call_by_name(C::NAME, body, within, stop)?;
        reply.read().map_err(|error| self.identity.skew(&format!("reply to `{}`", C::NAME), &error))
    }

    /// As [`Peer::call_within`] for a call given by name.
    ///
    /// # Errors
    /// As [`Peer::call_unless`].
    pub fn call_by_name(
        &mut self,
        name: &str,
        body: Body,
        within: Duration,
        stop: &AtomicBool,
    ) -> Result<Body, PeerError> {
        let span = self.link.span().clone();
        let _entered = span.enter();
        tracing::debug!(peer = self.name(), call = name, "calling");
        let sent = self.link.shared().with(|state, now| state.session.request(name, body, now));
        let id = sent.map_err(|error| self.invalid(error.to_string()))?;
        let limit = self.limit(within);
        let mut waited = Duration::ZERO;
        loop {
            if stop.load(Ordering::Relaxed) || interruption::is_over() {
                let reason = format!("the wait for the reply to `{name}` was cancelled");
                return Err(PeerError::Stopped { name: self.name().to_owned(), reason });
            }
            if waited >= limit {
                self.is_unanswered = true;
                return Err(self.unanswered(format!("reply to `{name}`"), waited));
            }
            let step = Instant::now();
            let next = self.link.next(Some(step + WAIT_STEP));
            waited += step.elapsed().min(STEP_MAX);
            match next {
                Some(Next::Message(Incoming::Reply { id: replied, outcome })) if replied == id => {
                    return match outcome {
                        Outcome::Done(reply) => Ok(reply),
                        Outcome::Failed(failure) => {
                            Err(PeerError::Refused { name: self.name().to_owned(), failure })
                        }
                    };
                }
                Some(Next::Message(message)) => self.keep(message),
                Some(Next::End(end)) => return Err(self.lost(end)),
                None => {}
            }
        }
    }

    /// Fails when no event has come for longer than `within`; `heard` is when the last one came, or when they began.
    ///
    /// # Errors
    /// [`PeerError::Unanswered`], which names `event`.
    pub fn check_silence(&self, event: &str, heard: Instant, within: Duration) -> Result<(), PeerError> {
        match heard.elapsed() {
            silence if silence >= within => Err(self.unanswered(format!("event `{event}`"), silence)),
            _ => Ok(()),
        }
    }

    fn unanswered(&self, awaited: String, after: Duration) -> PeerError {
        tracing::debug!(peer = self.name(), awaited, ?after, "nothing came");
        PeerError::Unanswered { name: self.name().to_owned(), awaited, after }
    }

    /// The time for a reply, of what the call has.
    pub(super) fn limit(&self, within: Duration) -> Duration {
        let left = |until: Instant| until.saturating_duration_since(Instant::now()).max(OVERTIME);
        let most =
            if self.is_unanswered { LAST_CALLS_WITHIN } else { self.until.map_or(Duration::MAX, left) };
        within.min(most)
    }
}
