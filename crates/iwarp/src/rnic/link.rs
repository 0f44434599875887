//! One connection of the RNIC: a protocol state machine and its socket, and the
//! path of requests to it.
//!
//! Locking: state machine and socket are behind one mutex, which is held during
//! system calls. With an engine, posters append their requests to the inbox and
//! ring the doorbell; with inline progress they post to the state machine
//! themselves. Receives are posted to a queue with its own mutex.

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
    queue_pair::{Event, Failure, Limits, Machine, ReceiveQueue, Side, State},
    rnic::{
        AsyncEvent, CachePadded, CompletionQueue, Established,
        domain::Domain,
        driver::Driver,
        inbox::Inbox,
        locked,
        phase::{Phase, flushed},
        statistics::{Counters, Mover},
        transport::{Transport, Visit},
    },
    stag::QueuePairId,
    work::{Completed, SendRequest, Status},
};

/// Time that a closed connection waits for the peer's end of stream.
const LINGER: Duration = Duration::from_secs(10);

/// Limit of unsent bytes in the kernel per connection, with many connections.
const UNSENT_BYTES: u32 = 128 << 10;

/// Attempts of a poster to lock the transport before it yields.
const TRIES_PER_YIELD: u32 = 64;

/// State common to a queue pair and its driver.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) id: QueuePairId,
    pub(super) domain: Arc<Domain>,
    pub(super) sends: CompletionQueue,
    pub(super) receives: CompletionQueue,
    /// Receive queue, its own or shared.
    pub(super) queue: Arc<Mutex<ReceiveQueue>>,
    /// Token of the shared receive queue.
    pub(super) shared: Option<u64>,
    pub(super) limits: Limits,
    /// Engine that drives it; with inline progress its completion queues do.
    pub(super) engine: Option<Arc<Driver>>,
    pub(super) established: OnceLock<Established>,
    phase: AtomicU8,
    state: AtomicU8,
    pub(super) inbox: Inbox,
    pub(super) counters: Counters,
    transport: CachePadded<Mutex<Option<Transport>>>,
}

/// Buffers of a driver, one set for all its connections.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    /// Buffer for received bytes that have no other destination yet.
    pub(super) staging: Vec<u8>,
    /// Thread of the turn.
    pub(super) mover: Mover,
    /// Requests taken from an inbox.
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
            phase: AtomicU8::new(Phase::New as u8),
            state: AtomicU8::new(State::Idle as u8),
            inbox: Inbox::default(),
            counters: Counters::default(),
            transport: CachePadded::default(),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::New,
            1 => Phase::Connecting,
            2 => Phase::Connected,
            _ => Phase::Closed,
        }
    }

    /// Changes from one phase to another, if it is in the first.
    pub(super) fn advance_phase(&self, from: Phase, to: Phase) -> bool {
        self.phase.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
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

    /// Starts the connection with its state machine and socket. `early` are
    /// bytes received after the setup frames; `deadline` is the deadline of the
    /// peer's first FPDU.
    pub(super) fn establish(
        self: &Arc<Self>,
        machine: Machine,
        socket: Socket,
        early: &[u8],
        deadline: Option<Instant>,
    ) {
        let mut slot = locked(&self.transport.0);
        let transport = slot.insert(Transport::new(machine, socket, deadline));
        if !early.is_empty() {
            transport.machine.consume(early);
            self.counters.add_visit(Mover::Program, 0, early.len());
        }
        self.state.store(transport.machine.state() as u8, Ordering::Release);
        self.phase.store(Phase::Connected as u8, Ordering::Release);
        self.for_drivers(|driver| driver.join(self.clone()));
        // Now: a thread that posts a receive for these bytes resumes the machine.
        drop(slot);
        // Process early bytes, and send the ready-to-receive message.
        self.with_machine(|_| ());
    }

    /// Calls `act` for each driver that polls its socket.
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

    /// Makes progress without blocking; receives only if `read`. `None` if
    /// another thread has locked the transport.
    pub(super) fn drive(&self, workspace: &mut Workspace, read: bool) -> Option<Visit> {
        let mut slot = self.try_transport()?;
        let Some(transport) = slot.as_mut() else {
            drop(slot);
            self.flush_inbox();
            return Some(Visit { over: true, ..Visit::default() });
        };
        transport.predictor.driven();
        let acted = self.take_requests(transport, &mut workspace.requests);
        let staging = if read { &mut workspace.staging[..] } else { &mut [] };
        let visit = self.move_bytes(transport, acted, staging, workspace.mover);
        self.release(slot, visit);
        Some(visit)
    }

    /// Applies `act` to the state machine of a connection, if there is one, and processes its effects.
    pub(super) fn with_machine<T>(self: &Arc<Self>, act: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        let mut slot = self.lock_transport();
        let transport = slot.as_mut()?;
        transport.predictor.driven();
        self.take_requests(transport, &mut VecDeque::new());
        let outcome = act(&mut transport.machine);
        let visit = self.move_bytes(transport, true, &mut [], Mover::Program);
        self.release(slot, visit);
        if let Some(engine) = &self.engine {
            engine.ring(self);
        }
        Some(outcome)
    }

    /// Destroys the connection without flushing to its completion queues.
    pub(super) fn destroy(&self) {
        self.phase.store(Phase::Closed as u8, Ordering::Release);
        let transport = locked(&self.transport.0).take();
        if let Some(mut transport) = transport
            && transport.predictor.is_held()
        {
            // As if it had not been held.
            transport.transmit(&mut Visit::default());
        }
        self.inbox.empty(drop);
        self.for_drivers(|driver| driver.remove(self.id));
    }

    /// Updates its epolls.
    pub(super) fn rewatch(&self) {
        if let Some(transport) = locked(&self.transport.0).as_mut() {
            self.update_epolls(transport);
        }
    }

    /// Passes the epoll interest: readable, writable.
    pub(super) fn watch(&self, act: impl FnOnce(&Socket, bool, bool)) {
        if let Some(transport) = locked(&self.transport.0).as_mut() {
            // The only epoll of an engine is now up to date; with two epolls
            // each was updated separately.
            let (read, write) = transport.interest();
            if self.engine.is_some() {
                transport.watched = (read, write);
            }
            act(&transport.socket, read, write);
        }
    }

    /// Limits the unsent bytes if it is one of many connections. Data handed to
    /// the kernel faster than it is sent and read would be evicted from the
    /// caches.
    pub(super) fn crowd(&self, crowded: bool) {
        if let Some(transport) = locked(&self.transport.0).as_mut() {
            // Data in flight is not limited, so that long paths stay full
            // (tcp(7), TCP_NOTSENT_LOWAT; 0: system default). An old kernel
            // ignores it.
            let _ = transport.socket.set_tcp_notsent_lowat(if crowded { UNSENT_BYTES } else { 0 });
        }
    }

    /// Whether another thread moves its bytes.
    pub(super) fn is_moving(&self) -> bool {
        self.try_transport().is_none()
    }

    pub(super) fn try_transport(&self) -> Option<MutexGuard<'_, Option<Transport>>> {
        match self.transport.0.try_lock() {
            Ok(slot) => Some(slot),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the transport, which another thread holds for one system call at
    /// most. Waiting in the mutex would be unfair: a thread that polls all the
    /// time hardly ever lets a woken one acquire it.
    pub(super) fn lock_transport(&self) -> MutexGuard<'_, Option<Transport>> {
        let mut tries = 0u32;
        loop {
            if let Some(slot) = self.try_transport() {
                return slot;
            }
            tries += 1;
            if tries.is_multiple_of(TRIES_PER_YIELD) { thread::yield_now() } else { hint::spin_loop() }
        }
    }

    /// Releases the transport; drops it if the connection is closed.
    pub(super) fn release(&self, mut slot: MutexGuard<'_, Option<Transport>>, visit: Visit) {
        let gone = if visit.over { slot.take() } else { None };
        drop(slot);
        if gone.is_some() {
            self.flush_inbox();
            self.flush_receives();
        }
    }

    /// Moves requests from the inbox to the state machine; returns whether
    /// there were any.
    fn take_requests(&self, transport: &mut Transport, requests: &mut VecDeque<SendRequest>) -> bool {
        if !self.inbox.take(requests, transport.machine.outstanding()) {
            return false;
        }
        for request in requests.drain(..) {
            let (id, completed) = (request.id, request.operation.completed());
            match transport.machine.post_send(request) {
                Ok(()) => self.counters.sends.add(1),
                Err(_) => _ = self.sends.push(flushed(self.id, id, completed)),
            }
        }
        true
    }

    /// Sends and receives; `acted` reports that the state machine had new input
    /// since it was settled last.
    pub(super) fn move_bytes(
        &self,
        transport: &mut Transport,
        acted: bool,
        staging: &mut [u8],
        by: Mover,
    ) -> Visit {
        let mut visit = Visit::default();
        transport.transmit(&mut visit);
        if !staging.is_empty() {
            let (sent, spent) = (std::mem::take(&mut visit.progress), visit.more);
            transport.receive(staging, &mut visit);
            if visit.progress && !spent {
                transport.transmit(&mut visit);
            }
            visit.progress |= sent;
        }
        // The program extends a full receive before long: no system call is spent on its own visits.
        let machine = &transport.machine;
        transport.parked = machine.is_waiting()
            && (transport.parked || by != Mover::Program || machine.is_receiver_not_ready());
        // Fast path: a poll without progress is the most frequent case.
        let settled = transport.deadline.is_none() && transport.watched == transport.interest();
        if acted || visit.progress || !settled {
            self.settle(transport, &mut visit);
            if visit.progress {
                self.counters.add_visit(by, visit.sent_bytes, visit.received_bytes);
            }
        }
        visit
    }

    /// Delivers completions and events of the state machine; closes the stream
    /// when it has ended.
    fn settle(&self, transport: &mut Transport, visit: &mut Visit) {
        if transport.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            if transport.machine.is_receiver_not_ready() {
                transport.end_receiver_not_ready(visit);
            } else {
                transport.machine.fail(Failure::TimedOut);
            }
        }
        self.inbox.settle(transport.machine.outstanding());
        let mut lost = false;
        for (side, completion) in transport.machine.completions() {
            visit.progress = true;
            lost |= match side {
                Side::Send => self.sends.push(completion),
                Side::Receive => {
                    let received = completion.status == Status::Success
                        && completion.completed != Completed::ReceiveFull;
                    self.counters.receives.add(u64::from(received));
                    self.receives.push(completion)
                }
            };
        }
        if lost {
            // A completion was lost, and with it the queue pair.
            transport.machine.fail(Failure::Ended);
            for (side, completion) in transport.machine.completions() {
                match side {
                    Side::Send => self.sends.push(completion),
                    Side::Receive => self.receives.push(completion),
                };
            }
        }
        self.emit_events(transport);
        transport.limit_receiver_not_ready(self.domain.device.options.receive_timeout);
        let state = transport.machine.state() as u8;
        // Posters read it frequently; write only on change.
        if self.state.load(Ordering::Relaxed) != state {
            self.state.store(state, Ordering::Release);
        }
        if transport.machine.wants_close() {
            self.end(transport, visit);
        } else if transport.machine.state() == State::Terminate && transport.deadline.is_none() {
            // A peer that does not read keeps the Terminate from being sent.
            transport.deadline = Some(Instant::now() + LINGER);
        }
        if transport.announced != transport.deadline && !visit.over {
            transport.announced = transport.deadline;
            self.for_drivers(|driver| driver.due(self.id, transport.deadline));
        }
        if !visit.over && self.engine.as_ref().is_none_or(|engine| engine.is_eager()) {
            self.update_epolls(transport);
        }
    }

    /// Updates the epolls if the interest changed.
    fn update_epolls(&self, transport: &mut Transport) {
        let (read, write) = transport.interest();
        if transport.watched != (read, write) {
            transport.watched = (read, write);
            self.for_drivers(|driver| driver.rewatch(self.id, &transport.socket, read, write));
        }
    }

    /// Shuts down for writing, then reads to the peer's end of stream: closing
    /// a socket with unread bytes resets the connection, and the peer may lose
    /// the last message.
    fn end(&self, transport: &mut Transport, visit: &mut Visit) {
        if matches!(transport.machine.state(), State::Error | State::Idle) {
            self.phase.store(Phase::Closed as u8, Ordering::Release);
            self.flush_receives();
            let late =
                transport.deadline.is_some_and(|deadline| transport.shut && Instant::now() >= deadline);
            visit.over = transport.ended || transport.aborted || late;
        }
        if !transport.shut && !visit.over {
            transport.shut = true;
            // The peer may have closed already; reading reports it.
            let _ = transport.socket.shutdown(Shutdown::Write);
            transport.deadline = Some(Instant::now() + LINGER);
        }
    }

    fn emit_events(&self, transport: &mut Transport) {
        let events = &self.domain.device.events;
        let queue_pair = self.id;
        let Transport { machine, deadline, aborted, .. } = transport;
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

    pub(super) fn flush_receives(&self) {
        if self.shared.is_some() {
            return;
        }
        loop {
            let Some(request) = locked(&self.queue).take().0 else { return };
            self.receives.push(flushed(self.id, request.id, Completed::Receive));
        }
    }
}
