//! One connection of the RNIC: a protocol machine and its socket, and how
//! requests get to it.
//!
//! Who may do what at a time: the machine and the socket are behind one mutex,
//! which is held over system calls. With an engine posters leave their requests
//! in the inbox and ring; inline they post to the machine themselves. Receives
//! are posted to a queue with a mutex of its own.

use std::{
    collections::VecDeque,
    hint,
    net::Shutdown,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, TryLockError,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use socket2::Socket;

use crate::{
    queue_pair::{Event, Failure, Limits, Machine, PostError, ReceiveQueue, Side, State},
    rnic::{
        Apart, AsyncEvent, CompletionQueue, Established, ListError,
        domain::Domain,
        driver::Driver,
        inbox::Inbox,
        locked,
        shared_receive_queue::{post_all, post_each},
        wire::{Visit, Wire},
    },
    stag::QueuePairId,
    work::{Completed, Completion, ReceiveRequest, SendRequest, Status},
};

/// How long a connection that this side has ended may wait for the peer's end.
const LINGER: Duration = Duration::from_secs(10);

/// Bytes that one connection of many leaves with the kernel unsent.
const UNSENT_BYTES: u32 = 128 << 10;

/// How often a poster looks for the wire before it lets others run.
const TRIES_PER_YIELD: u32 = 64;

/// The ages of a queue pair, as its posters see them without the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Age {
    /// Never connected.
    Fresh,
    /// Being connected.
    SettingUp,
    /// Has a machine.
    Live,
    /// Had one.
    Over,
}

/// What a queue pair and whoever drives it share.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) id: QueuePairId,
    pub(super) domain: Arc<Domain>,
    pub(super) sends: CompletionQueue,
    pub(super) receives: CompletionQueue,
    /// Posted receives, its own or shared ones.
    pub(super) queue: Arc<Mutex<ReceiveQueue>>,
    /// The number of the shared receive queue.
    pub(super) shared: Option<u64>,
    pub(super) limits: Limits,
    /// The engine that drives it; inline its completion queues do.
    pub(super) engine: Option<Arc<Driver>>,
    pub(super) established: OnceLock<Established>,
    age: AtomicU8,
    state: AtomicU8,
    pub(super) inbox: Inbox,
    wire: Apart<Mutex<Option<Wire>>>,
}

/// What whoever drives connections has once for all of them.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    /// Where bytes come that have no other place yet.
    pub(super) staging: Vec<u8>,
    /// Requests between an inbox and the machine.
    requests: VecDeque<SendRequest>,
}

impl Link {
    #[allow(clippy::too_many_arguments, reason = "what a queue pair is made of, in one place")]
    pub(super) fn new(
        id: QueuePairId,
        domain: Arc<Domain>,
        sends: CompletionQueue,
        receives: CompletionQueue,
        queue: Arc<Mutex<ReceiveQueue>>,
        shared: Option<u64>,
        limits: Limits,
        engine: Option<Arc<Driver>>,
    ) -> Self {
        Self {
            id,
            domain,
            sends,
            receives,
            queue,
            shared,
            limits,
            engine,
            established: OnceLock::new(),
            age: AtomicU8::new(Age::Fresh as u8),
            state: AtomicU8::new(State::Idle as u8),
            inbox: Inbox::default(),
            wire: Apart::default(),
        }
    }

    pub(super) fn age(&self) -> Age {
        match self.age.load(Ordering::Acquire) {
            0 => Age::Fresh,
            1 => Age::SettingUp,
            2 => Age::Live,
            _ => Age::Over,
        }
    }

    /// Moves from one age to another, if it is that old.
    pub(super) fn turn_age(&self, from: Age, to: Age) -> bool {
        self.age.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            state if state == State::Idle as u8 => State::Idle,
            state if state == State::Rts as u8 => State::Rts,
            state if state == State::Closing as u8 => State::Closing,
            state if state == State::Terminate as u8 => State::Terminate,
            _ => State::Error,
        }
    }

    /// Gets its machine and socket. `early` are bytes that came behind the
    /// set-up; `deadline` is when the peer must have sent its first FPDU.
    pub(super) fn establish(
        self: &Arc<Self>,
        machine: Machine,
        socket: Socket,
        early: &[u8],
        deadline: Option<Instant>,
    ) {
        let mut wire = Wire::new(machine, socket, deadline);
        if !early.is_empty() {
            wire.machine.consume(early);
        }
        self.state.store(wire.machine.state() as u8, Ordering::Release);
        *locked(&self.wire.0) = Some(wire);
        self.age.store(Age::Live as u8, Ordering::Release);
        self.for_drivers(|driver| driver.join(self.clone()));
        // What came early is told, and the ready-to-receive message sent.
        self.with_machine(|_| ());
    }

    /// Those that look at its socket.
    pub(super) fn for_drivers(&self, mut act: impl FnMut(&Driver)) {
        if let Some(engine) = &self.engine {
            return act(engine);
        }
        if let Some(driver) = self.receives.driver() {
            act(driver);
        }
        if !self.sends.is(&self.receives)
            && let Some(driver) = self.sends.driver()
        {
            act(driver);
        }
    }

    /// Posts sends: into the inbox of an engine, or to the machine itself when
    /// the caller moves the bytes.
    pub(super) fn post_sends(
        self: &Arc<Self>,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<(), ListError> {
        if self.age() != Age::Live || self.state() != State::Rts {
            return Err(ListError { posted: 0, error: PostError::NotConnected });
        }
        let Some(engine) = &self.engine else {
            let mut slot = self.wire_soon();
            let Some(wire) = slot.as_mut() else {
                return Err(ListError { posted: 0, error: PostError::NotConnected });
            };
            let outcome = post_each(requests, |request| wire.machine.post_send(request));
            let visit = self.move_bytes(wire, true, &mut []);
            self.leave(slot, visit);
            if visit.more {
                self.for_drivers(Driver::fall_behind);
            }
            return outcome;
        };
        let ord = self.established.get().map_or(0, |established| established.ord);
        let depth = self.limits.send_queue;
        let outcome = self.inbox.post(requests, depth, |request| self.limits.check(request, ord));
        engine.ring(self);
        outcome
    }

    /// Posts receives, before it is connected too.
    pub(super) fn post_receives(
        &self,
        requests: impl IntoIterator<Item = ReceiveRequest>,
    ) -> Result<(), ListError> {
        if self.shared.is_some() {
            return Err(ListError { posted: 0, error: PostError::SharedReceives });
        }
        if self.age() == Age::Over {
            return Err(ListError { posted: 0, error: PostError::NotConnected });
        }
        post_all(&self.queue, requests)?;
        // It may have ended in between: then nobody else flushes them.
        if self.age() == Age::Over {
            self.flush_receives();
        }
        Ok(())
    }

    /// Moves what can be moved without waiting, unless another thread does;
    /// receives only to `read`.
    pub(super) fn drive(&self, workspace: &mut Workspace, read: bool) -> Visit {
        let Some(mut slot) = self.try_wire() else { return Visit::default() };
        let Some(wire) = slot.as_mut() else {
            drop(slot);
            self.flush_inbox();
            return Visit { over: true, ..Visit::default() };
        };
        let acted = self.take_in(wire, &mut workspace.requests);
        let staging = if read { &mut workspace.staging[..] } else { &mut [] };
        let visit = self.move_bytes(wire, acted, staging);
        self.leave(slot, visit);
        visit
    }

    /// Does something with the machine, and what follows from it.
    pub(super) fn with_machine(self: &Arc<Self>, act: impl FnOnce(&mut Machine)) {
        let mut slot = locked(&self.wire.0);
        let Some(wire) = slot.as_mut() else { return };
        self.take_in(wire, &mut VecDeque::new());
        act(&mut wire.machine);
        let visit = self.move_bytes(wire, true, &mut []);
        self.leave(slot, visit);
        if let Some(engine) = &self.engine {
            engine.ring(self);
        }
    }

    /// Ends it at once and without a word to its completion queues.
    pub(super) fn destroy(&self) {
        self.age.store(Age::Over as u8, Ordering::Release);
        let wire = locked(&self.wire.0).take();
        drop(wire);
        self.inbox.empty(drop);
        self.for_drivers(|driver| driver.leave(self.id));
    }

    /// Tells its epolls what they have not been told yet.
    pub(super) fn rewatch(&self) {
        if let Some(wire) = locked(&self.wire.0).as_mut() {
            self.tell_epolls(wire);
        }
    }

    /// What an epoll should look out for: the peer's bytes, room for ours.
    pub(super) fn watch(&self, act: impl FnOnce(&Socket, bool, bool)) {
        if let Some(wire) = locked(&self.wire.0).as_mut() {
            // An engine's only epoll knows all from here on; of two epolls each
            // was told what changed.
            if self.engine.is_some() {
                wire.watched = (wire.ended, wire.blocked);
            }
            act(&wire.socket, !wire.ended, wire.blocked);
        }
    }

    /// Whether it is one of many. What a crowd hands to the kernel faster than it
    /// is sent and read would leave the caches before, all the time.
    pub(super) fn crowd(&self, crowded: bool) {
        if let Some(wire) = locked(&self.wire.0).as_mut() {
            // What is on its way is not bound by this, so that long paths stay
            // full (tcp(7), TCP_NOTSENT_LOWAT; 0: as the system has it). An old
            // kernel does without.
            let _ = wire.socket.set_tcp_notsent_lowat(if crowded { UNSENT_BYTES } else { 0 });
        }
    }

    fn try_wire(&self) -> Option<MutexGuard<'_, Option<Wire>>> {
        match self.wire.0.try_lock() {
            Ok(slot) => Some(slot),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The wire, which another thread has for one system call at most. A queue
    /// of waiting threads would be unfair: one that polls all the time hardly
    /// ever lets a woken one have it.
    fn wire_soon(&self) -> MutexGuard<'_, Option<Wire>> {
        let mut tries = 0u32;
        loop {
            if let Some(slot) = self.try_wire() {
                return slot;
            }
            tries += 1;
            if tries.is_multiple_of(TRIES_PER_YIELD) { thread::yield_now() } else { hint::spin_loop() }
        }
    }

    /// Lets go of the wire, for good if it is over.
    fn leave(&self, mut slot: MutexGuard<'_, Option<Wire>>, visit: Visit) {
        let gone = if visit.over { slot.take() } else { None };
        drop(slot);
        if gone.is_some() {
            self.flush_inbox();
            self.flush_receives();
        }
    }

    /// Requests of the inbox go to the machine; whether there were any.
    fn take_in(&self, wire: &mut Wire, requests: &mut VecDeque<SendRequest>) -> bool {
        if !self.inbox.take(requests, wire.machine.outstanding()) {
            return false;
        }
        for request in requests.drain(..) {
            let (id, completed) = (request.id, request.operation.completed());
            if wire.machine.post_send(request).is_err() {
                self.sends.push(flushed(self.id, id, completed));
            }
        }
        true
    }

    /// Moves bytes both ways; `acted` says that the machine was told something
    /// since it was settled last.
    fn move_bytes(&self, wire: &mut Wire, acted: bool, staging: &mut [u8]) -> Visit {
        let mut visit = Visit::default();
        wire.transmit(&mut visit);
        if !staging.is_empty() {
            let (sent, spent) = (std::mem::take(&mut visit.progress), visit.more);
            wire.receive(staging, &mut visit);
            if visit.progress && !spent {
                wire.transmit(&mut visit);
            }
            visit.progress |= sent;
        }
        // The look that finds nothing is the most frequent of all.
        let settled = wire.deadline.is_none() && wire.watched == (wire.ended, wire.blocked);
        if acted || visit.progress || !settled {
            self.settle(wire, &mut visit);
        }
        visit
    }

    /// Hands out what the machine has to tell; ends the stream when it is time.
    fn settle(&self, wire: &mut Wire, visit: &mut Visit) {
        if wire.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            wire.machine.fail(Failure::TimedOut);
        }
        self.inbox.settle(wire.machine.outstanding());
        let mut lost = false;
        for (side, completion) in wire.machine.completions() {
            visit.progress = true;
            lost |= match side {
                Side::Send => self.sends.push(completion),
                Side::Receive => self.receives.push(completion),
            };
        }
        if lost {
            // A completion was lost for good, and with it the queue pair.
            wire.machine.fail(Failure::Ended);
            for (side, completion) in wire.machine.completions() {
                match side {
                    Side::Send => self.sends.push(completion),
                    Side::Receive => self.receives.push(completion),
                };
            }
        }
        self.tell(wire);
        let state = wire.machine.state() as u8;
        // Posters read it all the time.
        if self.state.load(Ordering::Relaxed) != state {
            self.state.store(state, Ordering::Release);
        }
        if wire.machine.wants_close() {
            self.end(wire, visit);
        } else if wire.machine.state() == State::Terminate && wire.deadline.is_none() {
            // A peer that reads nothing keeps it from leaving.
            wire.deadline = Some(Instant::now() + LINGER);
        }
        if wire.announced != wire.deadline && !visit.over {
            wire.announced = wire.deadline;
            self.for_drivers(|driver| driver.due(self.id, wire.deadline));
        }
        if !visit.over && self.engine.as_ref().is_none_or(|engine| engine.is_eager()) {
            self.tell_epolls(wire);
        }
    }

    /// What an epoll is to look out for may have changed.
    fn tell_epolls(&self, wire: &mut Wire) {
        let wanted = (wire.ended, wire.blocked);
        if wire.watched != wanted {
            wire.watched = wanted;
            self.for_drivers(|driver| driver.rewatch(self.id, &wire.socket, !wire.ended, wire.blocked));
        }
    }

    /// Nothing more will be sent. What is not over yet is read to the peer's
    /// end: a socket that is closed with bytes unread resets the connection,
    /// and the peer may lose our last words.
    fn end(&self, wire: &mut Wire, visit: &mut Visit) {
        if matches!(wire.machine.state(), State::Error | State::Idle) {
            self.age.store(Age::Over as u8, Ordering::Release);
            self.flush_receives();
            let late = wire.deadline.is_some_and(|deadline| wire.shut && Instant::now() >= deadline);
            visit.over = wire.ended || wire.aborted || late;
        }
        if !wire.shut && !visit.over {
            wire.shut = true;
            // The peer may be gone already; reading tells.
            let _ = wire.socket.shutdown(Shutdown::Write);
            wire.deadline = Some(Instant::now() + LINGER);
        }
    }

    fn tell(&self, wire: &mut Wire) {
        let events = &self.domain.device.events;
        let queue_pair = self.id;
        let Wire { machine, deadline, aborted, .. } = wire;
        for event in machine.events() {
            events.push(match event {
                Event::Established => {
                    *deadline = None;
                    AsyncEvent::Established { queue_pair }
                }
                Event::TerminateReceived(terminate) => {
                    AsyncEvent::TerminateReceived { queue_pair, terminate }
                }
                Event::TerminateSent(terminate) => AsyncEvent::TerminateSent { queue_pair, terminate },
                Event::PeerClosed => AsyncEvent::Disconnected { queue_pair, failure: None },
                Event::Failed(failure) => {
                    *aborted |= matches!(failure, Failure::Ended | Failure::TimedOut);
                    AsyncEvent::Disconnected { queue_pair, failure: Some(failure) }
                }
                Event::ReceivesLow => {
                    AsyncEvent::SharedReceiveQueueLimit { token: self.shared.unwrap_or_default() }
                }
            });
        }
    }

    fn flush_inbox(&self) {
        self.inbox.empty(|request| {
            self.sends.push(flushed(self.id, request.id, request.operation.completed()));
        });
    }

    fn flush_receives(&self) {
        if self.shared.is_some() {
            return;
        }
        loop {
            let Some(request) = locked(&self.queue).take().0 else { return };
            self.receives.push(flushed(self.id, request.id, Completed::Receive));
        }
    }
}

fn flushed(queue_pair: QueuePairId, id: u64, completed: Completed) -> Completion {
    Completion {
        id,
        queue_pair,
        completed,
        status: Status::Flushed,
        bytes: 0,
        immediate: None,
        invalidated: None,
        solicited: false,
    }
}
