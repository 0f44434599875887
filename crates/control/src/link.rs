//! A running session: one thread reads, one writes and drives the timers, and owners of the link wait for
//! messages. A long request therefore never delays a `KeepAlive`, and a blocked writer never hides the loss
//! of the peer.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::control::FailureKind;
use tracing::Span;

use crate::{
    message::{Hello, Message},
    session::{Incoming, KEEP_ALIVE_INTERVAL, Role, Session, SessionEnd},
};

/// Maximum time for queued messages (the `Goodbye`) to be sent before the transport is closed.
const LINGER: Duration = Duration::from_millis(300);
/// Size of one read.
const READ_BYTES: usize = 64 << 10;

/// A bidirectional byte stream, split into halves for two threads.
pub(crate) struct Transport {
    pub(crate) reader: Box<dyn Read + Send>,
    pub(crate) writer: Box<dyn Write + Send>,
    /// Closes both directions and wakes any thread blocked in them, where the transport can.
    pub(crate) close: Box<dyn Fn() + Send + Sync>,
    /// Text in front of the peer's first message is skipped.
    pub(crate) skips_text: bool,
}

impl Transport {
    /// A connected pair of sockets in this process.
    pub(crate) fn unix(socket: UnixStream) -> io::Result<Self> {
        let (reader, closer) = (socket.try_clone()?, socket.try_clone()?);
        let close = Box::new(move || drop(closer.shutdown(Shutdown::Both)));
        Ok(Self { reader: Box::new(reader), writer: Box::new(socket), close, skips_text: false })
    }

    /// A pair of pipes: the peer sees the writer's end of file.
    pub(crate) fn pipes(reader: impl Read + Send + 'static, writer: impl Write + Send + 'static) -> Self {
        Self { reader: Box::new(reader), writer: Box::new(writer), close: Box::new(|| {}), skips_text: false }
    }

    /// Closes a TCP connection, for transports that wrap one.
    pub(crate) fn closer(socket: TcpStream) -> Box<dyn Fn() + Send + Sync> {
        Box::new(move || drop(socket.shutdown(Shutdown::Both)))
    }
}

/// State shared by both threads and all owners.
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    close: Box<dyn Fn() + Send + Sync>,
}

/// The session and its accounting.
pub(crate) struct State {
    pub(crate) session: Session,
    /// Events dropped for lack of room since the last `EventsDropped`.
    pub(crate) dropped_count: u64,
    /// The writer has sent everything that it will ever send.
    writer_done: bool,
}

impl Shared {
    /// A poisoned lock is taken regardless: the session is plain data and stays consistent between calls.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the session and wakes all waiters.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state, Instant::now());
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Waits until `found` returns something or `until` has passed, driving the session's timers.
    pub(crate) fn wait<T>(
        &self,
        until: Option<Instant>,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let alive = state.session.end().is_none();
            state.session.tick(now);
            if alive && state.session.end().is_some() {
                self.changed.notify_all();
            }
            if let Some(result) = found(&mut state) {
                return Some(result);
            }
            if until.is_some_and(|until| now >= until) {
                return None;
            }
            let next = [until, state.session.next_deadline()].into_iter().flatten().min();
            let pause = next.map_or(KEEP_ALIVE_INTERVAL, |next| next.saturating_duration_since(now));
            // Never spin when a deadline has just passed.
            let pause = pause.max(Duration::from_millis(1));
            state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// One end of a session with its two threads. Dropping it sends `Goodbye`.
pub(crate) struct Link {
    shared: Arc<Shared>,
    span: Span,
}

/// What [`Link::next`] waited for.
pub(crate) enum Next {
    /// A message.
    Message(Incoming),
    /// The session is over and every message has been returned.
    End(SessionEnd),
}

impl Link {
    /// Starts the threads of a session over `transport`.
    pub(crate) fn start(
        role: Role,
        hello: Hello,
        hello_timeout: Duration,
        transport: Transport,
    ) -> io::Result<Self> {
        let Transport { reader, writer, close, skips_text } = transport;
        let mut session = Session::new(role, hello, hello_timeout, Instant::now());
        if skips_text {
            session.skip_text();
        }
        let state = State { session, dropped_count: 0, writer_done: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), close });
        let link = Self { shared, span: session_span(role) };
        let (shared, span) = (Arc::clone(&link.shared), link.span.clone());
        thread::Builder::new().name("control-read".into()).spawn(move || {
            let _entered = span.entered();
            read_loop(&shared, reader);
        })?;
        let (shared, span) = (Arc::clone(&link.shared), link.span.clone());
        thread::Builder::new().name("control-write".into()).spawn(move || {
            let _entered = span.entered();
            write_loop(&shared, writer);
        })?;
        Ok(link)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The tracing span of this session, with its id.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Waits for the next message; `None` when `until` has passed.
    pub(crate) fn next(&self, until: Option<Instant>) -> Option<Next> {
        self.shared.wait(until, |state| {
            let message = state.session.poll_message().map(Next::Message);
            message.or_else(|| state.session.end().cloned().map(Next::End))
        })
    }

    /// First line of the text that came before the peer's first message, if any did.
    pub(crate) fn skipped_text(&self) -> Option<String> {
        self.shared.lock().session.skipped_text()
    }

    /// Ends a session whose peer has not sent `Hello`, as at the deadline for it.
    pub(crate) fn give_up(&self) {
        self.shared.with(|state, now| state.session.give_up(now));
    }

    /// Sends one of the short messages.
    pub(crate) fn send_short(&self, message: &Message) {
        // Short messages always fit into a frame.
        self.shared.with(|state, now| drop(state.session.send(message, now)));
    }

    /// Closes the session gracefully and lingers until queued messages are sent.
    pub(crate) fn close(&self, reason: &str, kind: Option<FailureKind>) {
        self.shared.with(|state, now| state.session.goodbye(reason, kind, now));
        let until = Instant::now() + LINGER;
        self.shared.wait(Some(until), |state| state.writer_done.then_some(()));
        (self.shared.close)();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close("the session was closed", None);
    }
}

/// A span with an id unique among the sessions of this host.
fn session_span(role: Role) -> Span {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    // At level ERROR: a filter that lets a line through lets its session through.
    tracing::error_span!("session", id, ?role)
}

fn read_loop(shared: &Shared, mut reader: Box<dyn Read + Send>) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let result = reader.read(&mut buffer);
        let over = shared.with(|state, now| {
            match result {
                Ok(0) => state.session.feed_end(now),
                Ok(count) => state.session.feed(buffer.get(..count).unwrap_or(&buffer), now),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => state.session.feed_error(error.to_string()),
            }
            state.session.end().is_some()
        });
        if over {
            tracing::trace!("nothing more is read");
            return;
        }
    }
}

fn write_loop(shared: &Shared, mut writer: Box<dyn Write + Send>) {
    enum Work {
        Send(Vec<u8>),
        Finish,
    }
    loop {
        let work = shared.wait(None, |state| match state.session.poll_transmit() {
            Some(frame) => Some(Work::Send(frame)),
            None => state.session.end().is_some().then_some(Work::Finish),
        });
        let result = match work {
            Some(Work::Send(frame)) => writer.write_all(&frame).and_then(|()| writer.flush()),
            Some(Work::Finish) | None => break,
        };
        // Space became available, or the transport is gone.
        let over = shared.with(|state, _| match result {
            Ok(()) => false,
            Err(error) => {
                tracing::debug!(%error, "could not write");
                // The peer's last message explains a broken pipe better than the pipe does, so let the reader
                // get at it.
                state.write_failed(&error);
                true
            }
        });
        if over {
            break;
        }
    }
    drop(writer);
    shared.with(|state, _| state.writer_done = true);
}

impl State {
    fn write_failed(&mut self, error: &io::Error) {
        let gone = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
        if !gone {
            self.session.feed_error(error.to_string());
        }
    }
}
