//! The agent's side: requests go to a [`Handler`] that runs apart from the
//! session, so that the session stays alive while a request takes long, and
//! ends at once when the controller is gone.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::control::{Failure, FailureKind, Message, Outcome, Reply, Request};

use crate::{
    event::EventSender,
    link::{Link, Next, Shared, Transport},
    session::{HELLO_TIMEOUT, Incoming, Role, SessionEnd, own_hello},
};

/// How often a handler that has no request is given the chance to act.
pub const IDLE_INTERVAL: Duration = Duration::from_millis(200);
/// How long a handler may take to end after its controller has gone: with
/// [`crate::session::SILENCE`] before it, everything is over within 5 s.
pub const HANDLER_GRACE: Duration = Duration::from_millis(500);

/// Bytes of a capture that go into one event, before base64: a quarter of a frame.
pub const CAPTURE_CHUNK_BYTES: usize = 192 << 10;

/// What an agent can do. One handler serves one session and is dropped when
/// the session ends, however it ends: what it owns must end with it.
pub trait Handler: Send {
    /// Answers a request. Requests come one after the other.
    fn handle(&mut self, request: Request, events: &EventSender) -> Result<Reply, Failure>;

    /// Called about every [`IDLE_INTERVAL`] while there is no request.
    fn idle(&mut self, events: &EventSender) {
        let _ = events;
    }
}

impl Handler for Box<dyn Handler> {
    fn handle(&mut self, request: Request, events: &EventSender) -> Result<Reply, Failure> {
        self.as_mut().handle(request, events)
    }
    fn idle(&mut self, events: &EventSender) {
        self.as_mut().idle(events);
    }
}

/// Serves one controller over this process's standard input and output and
/// returns when it has gone: by `Shutdown`, by end of file, or by silence.
/// The process should end then; a handler that is still busy after
/// [`HANDLER_GRACE`] ends with it.
///
/// # Errors
/// How the session ended, unless it ended in order.
pub fn serve_stdio(handler: impl Handler + 'static) -> Result<(), SessionEnd> {
    if io::stdin().is_terminal() {
        let reason = "an agent is started by a controller, never by hand: try `clearstream flow HOST`";
        return Err(SessionEnd::Transport(reason.to_owned()));
    }
    let open = || -> io::Result<Link> {
        let reader = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let writer = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Link::start(Role::Agent, own_hello(), HELLO_TIMEOUT, Transport::pipes(reader, writer))
    };
    let link = open().map_err(|error| SessionEnd::Transport(error.to_string()))?;
    match serve_link(link, handler).end {
        SessionEnd::Closed | SessionEnd::Goodbye { .. } | SessionEnd::EndOfStream { inside_frame: false } => {
            Ok(())
        }
        end => Err(end),
    }
}

/// How serving one session went.
pub(crate) struct Served {
    /// Why it ended.
    pub(crate) end: SessionEnd,
    /// Gives something once the handler has been dropped, if it has not yet.
    pub(crate) handler_busy: Option<Receiver<()>>,
}

/// Serves one session from its `Hello` on.
pub(crate) fn serve_link(link: Link, handler: impl Handler + 'static) -> Served {
    match await_hello(&link) {
        Ok(()) => {
            link.say(&Message::Ready);
            serve_requests(&link, handler)
        }
        Err(end) => Served { end, handler_busy: None },
    }
}

/// Waits for the controller's `Hello`.
pub(crate) fn await_hello(link: &Link) -> Result<(), SessionEnd> {
    match link.next(None) {
        Some(Next::End(end)) => Err(end),
        // The first thing that a session lets through is a `Hello`.
        Some(Next::Message(_)) | None => Ok(()),
    }
}

/// Serves requests until the session ends.
pub(crate) fn serve_requests(link: &Link, handler: impl Handler + 'static) -> Served {
    let (requests, inbox) = channel();
    let (dropped, handler_busy) = channel();
    let shared = Arc::clone(link.shared());
    let worker = thread::Builder::new().name("agent".into()).spawn(move || {
        work(handler, &inbox, &shared);
        // The controller may be gone for long; nobody needs to know then.
        let _ = dropped.send(());
    });
    if let Err(error) = worker {
        link.close(&format!("the agent has no thread left: {error}"), Some(FailureKind::Internal));
    }
    let end = pass_requests(link, &requests);
    drop(requests);
    let handler_busy = match handler_busy.recv_timeout(HANDLER_GRACE) {
        Err(RecvTimeoutError::Timeout) => Some(handler_busy),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => None,
    };
    Served { end, handler_busy }
}

fn pass_requests(link: &Link, requests: &Sender<(u64, Request)>) -> SessionEnd {
    loop {
        match link.next(None) {
            Some(Next::Message(Incoming::Request { id, request })) if *request == Request::Shutdown => {
                link.shared().with(|state, now| {
                    state.session.reply(id, Outcome::Done(Box::new(Reply::Empty)), now);
                });
                link.close("the agent was told to end", None);
            }
            Some(Next::Message(Incoming::Request { id, request })) => {
                if requests.send((id, *request)).is_err() {
                    link.close("the agent has failed", Some(FailureKind::Internal));
                }
            }
            Some(Next::End(end)) => return end,
            // A controller sends nothing else.
            Some(Next::Message(_)) | None => {}
        }
    }
}

/// The handler's thread: ends, and drops the handler, when the session has.
fn work(mut handler: impl Handler, inbox: &Receiver<(u64, Request)>, shared: &Arc<Shared>) {
    let events = EventSender::new(Arc::clone(shared));
    let mut next_idle = Instant::now() + IDLE_INTERVAL;
    loop {
        match inbox.recv_timeout(next_idle.saturating_duration_since(Instant::now())) {
            // Asked for, but the controller has gone meanwhile.
            Ok(_) if !events.is_open() => return,
            Ok((id, request)) => {
                let answer = catch_unwind(AssertUnwindSafe(|| handler.handle(request, &events)));
                let outcome = match answer {
                    Ok(Ok(reply)) => Outcome::Done(Box::new(reply)),
                    Ok(Err(failure)) => Outcome::Failed(failure),
                    Err(_) => Outcome::Failed(Failure {
                        kind: FailureKind::Internal,
                        message: "the agent failed inside; please report it with the agent's last messages"
                            .to_owned(),
                    }),
                };
                shared.with(|state, now| state.session.reply(id, outcome, now));
            }
            Err(RecvTimeoutError::Timeout) => {
                handler.idle(&events);
                next_idle = Instant::now() + IDLE_INTERVAL;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
