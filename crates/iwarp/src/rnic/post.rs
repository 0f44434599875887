//! Posting to a connection: to the inbox of its engine, to its state machine, to
//! its receive queue.

use std::sync::Arc;

use crate::{
    queue_pair::{Machine, PostError, State},
    rnic::{
        ListError,
        driver::Driver,
        hold::{Decision, HELD_BYTES},
        link::Link,
        locked,
        phase::Phase,
        shared_receive_queue::post_each,
        statistics::Mover,
        ticks::Ticks,
    },
    work::{Data, Operation, ReceiveRequest, SendRequest},
};

impl Link {
    /// Posts sends: to the inbox of an engine, or directly to the state machine
    /// with inline progress.
    pub(super) fn post_sends(
        self: &Arc<Self>,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<(), ListError> {
        if self.phase() != Phase::Connected || self.state() != State::Rts {
            return Err(ListError { posted: 0, error: PostError::NotConnected });
        }
        let Some(engine) = &self.engine else { return self.post_to_machine(requests) };
        let (ord, immediate_data) = self
            .established
            .get()
            .map_or((0, false), |established| (established.ord, established.immediate_data));
        let depth = self.limits.send_queue;
        let outcome =
            self.inbox.post(requests, depth, |request| self.limits.check(request, ord, immediate_data));
        engine.ring(self);
        outcome
    }

    /// Posts to the state machine, and sends unless a small Write is held.
    fn post_to_machine(
        self: &Arc<Self>,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<(), ListError> {
        let mut slot = self.lock_transport();
        let Some(transport) = slot.as_mut() else {
            return Err(ListError { posted: 0, error: PostError::NotConnected });
        };
        let (mut count, mut small) = (0, false);
        let outcome = post_each(requests, |request| {
            (count, small) = (count + 1, is_small_write(&request));
            transport.machine.post_send(request).inspect(|()| self.counters.sends.add(1))
        });
        // Without a free slot no post can follow.
        let room = transport.machine.outstanding() < self.limits.send_queue;
        let alone = count == 1 && small && room && outcome.is_ok();
        let decision = transport.predictor.posted(alone, self.ticks().map(Ticks::are_running));
        if decision == Decision::Hold {
            drop(slot);
            self.hold();
            return outcome;
        }
        let visit = self.move_bytes(transport, true, &mut [], Mover::Program);
        self.release(slot, visit);
        if visit.more {
            self.for_drivers(Driver::request_turn);
        }
        if decision == Decision::SendAndTick
            && let Some(helper) = self.domain.device.watch()
            && helper.ticks.start()
        {
            helper.wake();
        }
        outcome
    }

    fn ticks(&self) -> Option<&Ticks> {
        self.domain.device.watch().map(|helper| &helper.ticks)
    }

    /// A Write is held: whatever drives its completion queue next sends it, or
    /// the helper. Called without the transport, which they lock.
    pub(super) fn hold(self: &Arc<Self>) {
        if let Some(driver) = self.sends.driver() {
            driver.ring(self);
        }
        if !self.ticks().is_some_and(Ticks::hold) {
            self.with_machine(|_| ());
        }
    }

    /// Helper, at a tick: sends a Write that was held at the tick before;
    /// returns whether none is held.
    pub(super) fn send_late(&self) -> bool {
        let Some(mut slot) = self.try_transport() else { return false };
        let Some(transport) = slot.as_mut() else { return true };
        if !transport.predictor.is_late() {
            return !transport.predictor.is_held();
        }
        let visit = self.move_bytes(transport, true, &mut [], Mover::Helper);
        self.release(slot, visit);
        true
    }

    /// Posts receives, also before the connection is established.
    pub(super) fn post_receives(
        self: &Arc<Self>,
        requests: impl IntoIterator<Item = ReceiveRequest>,
    ) -> Result<(), ListError> {
        if self.shared.is_some() {
            return Err(ListError { posted: 0, error: PostError::SharedReceives });
        }
        if self.phase() == Phase::Closed {
            return Err(ListError { posted: 0, error: PostError::NotConnected });
        }
        let (outcome, missed) = {
            let mut queue = locked(&self.queue);
            let outcome = post_each(requests, |request| queue.post(request));
            (outcome, queue.take_missed())
        };
        if missed {
            self.with_machine(Machine::resume);
        }
        outcome?;
        // It may have closed in between: then these must be flushed here.
        if self.phase() == Phase::Closed {
            self.flush_receives();
        }
        Ok(())
    }
}

fn is_small_write(request: &SendRequest) -> bool {
    let Operation::Write { data, .. } = &request.operation else { return false };
    let bytes = match data {
        Data::Inline(bytes) => bytes.len(),
        Data::Gather(segments) => segments.iter().map(|segment| segment.length as usize).sum(),
    };
    bytes <= HELD_BYTES
}
