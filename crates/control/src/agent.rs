//! The agent's side: requests go to [`Services`] on a thread apart from the
//! session, so that the session stays alive while a call takes long, and ends at
//! once when the controller is gone.

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
    time::Duration,
};

use clearstream_schema::control::{Failure, FailureKind};

use crate::{
    call::{Call, Done, Shutdown},
    event::EventSender,
    link::{Link, Next, Shared, Transport},
    message::{Body, Message, Outcome},
    service::{CallContext, Controller, Refusal, Services},
    session::{HELLO_TIMEOUT, Incoming, Role, SessionEnd, own_hello},
};

/// How long services may take to end after their controller has gone: with
/// [`crate::session::SILENCE`] before it, everything is over within 5 s.
pub const SERVICES_GRACE: Duration = Duration::from_millis(500);

/// Reports a request that no service has seen.
pub(crate) type OnRefused = Box<dyn Fn(&Failure) + Send>;

/// Who speaks with an agent.
pub(crate) struct Caller {
    /// Who came over TLS; nobody else is limited by a scope.
    pub(crate) controller: Option<Controller>,
    /// For a log.
    pub(crate) on_refused: OnRefused,
}

impl Caller {
    /// Whoever started the agent.
    fn starter() -> Self {
        Self { controller: None, on_refused: Box::new(|_| {}) }
    }
}

/// Serves one controller over this process's standard input and output and
/// returns when it has gone: by `Shutdown`, by end of file, or by silence.
/// The process should end then; a call that still runs after
/// [`SERVICES_GRACE`] ends with it.
///
/// # Errors
/// How the session ended, unless it ended in order.
pub fn serve_stdio(services: Services) -> Result<(), SessionEnd> {
    if io::stdin().is_terminal() {
        let reason = "an agent is started by a controller, never by hand: try `clearstream flow HOST`";
        return Err(SessionEnd::Transport(reason.to_owned()));
    }
    let open = || -> io::Result<Link> {
        let reader = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let writer = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Link::start(Role::Agent, own_hello(), HELLO_TIMEOUT, Transport::pipes(reader, writer))
    };
    let link = open()
        .map_err(|error| SessionEnd::Transport(Failure::of_system("start a session", &error).message))?;
    match serve_link(link, services).end {
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
    /// Gives something once the services have been dropped, if they have not yet.
    pub(crate) busy: Option<Receiver<()>>,
}

/// Serves whoever started this agent, from its `Hello` on.
pub(crate) fn serve_link(link: Link, services: Services) -> Served {
    match await_hello(&link) {
        Ok(()) => {
            link.say(&Message::Ready);
            serve_requests(&link, services, Caller::starter())
        }
        Err(end) => Served { end, busy: None },
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
pub(crate) fn serve_requests(link: &Link, services: Services, caller: Caller) -> Served {
    let _entered = link.span().enter();
    match &caller.controller {
        Some(controller) => {
            tracing::info!(client = controller.name, address = %controller.address, "session opened");
        }
        None => tracing::info!("session opened by the starter"),
    }
    let (requests, inbox) = channel();
    let (dropped, busy) = channel();
    let (shared, span) = (Arc::clone(link.shared()), link.span().clone());
    let worker = thread::Builder::new().name("agent".into()).spawn(move || {
        let _entered = span.entered();
        work(services, &caller, &inbox, &shared);
        // The controller may be gone for long; nobody needs to know then.
        let _ = dropped.send(());
    });
    if let Err(error) = worker {
        let failure = Failure::of_system("start a thread for calls", &error);
        link.close(&failure.message, Some(failure.kind));
    }
    let end = pass_requests(link, &requests);
    tracing::info!(reason = %end, "session ended");
    drop(requests);
    let busy = match busy.recv_timeout(SERVICES_GRACE) {
        Err(RecvTimeoutError::Timeout) => Some(busy),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => None,
    };
    Served { end, busy }
}

/// A request on its way to the services.
struct Request {
    id: u64,
    name: String,
    body: Body,
}

fn pass_requests(link: &Link, requests: &Sender<Request>) -> SessionEnd {
    loop {
        match link.next(None) {
            Some(Next::Message(Incoming::Request { id, name, .. })) if name == Shutdown::NAME => {
                // An empty object has a form in JSON.
                let outcome = Body::of(&Done {}).map(Outcome::Done);
                link.shared().with(|state, now| outcome.map(|done| state.session.reply(id, done, now)).ok());
                link.close("the agent was told to end", None);
            }
            Some(Next::Message(Incoming::Request { id, name, body })) => {
                if requests.send(Request { id, name, body }).is_err() {
                    link.close("the agent has failed", Some(FailureKind::Internal));
                }
            }
            Some(Next::End(end)) => return end,
            // A controller sends nothing else.
            Some(Next::Message(_)) | None => {}
        }
    }
}

/// The services' thread: ends, and drops them, when the session has.
fn work(services: Services, caller: &Caller, inbox: &Receiver<Request>, shared: &Arc<Shared>) {
    let events = EventSender::new(Arc::clone(shared));
    let context = CallContext::new(&events, caller.controller.as_ref());
    while let Ok(Request { id, name, body }) = inbox.recv() {
        // Requested, but the controller has gone meanwhile.
        if !events.is_open() {
            return;
        }
        tracing::debug!(id, call = name, "called");
        let served = catch_unwind(AssertUnwindSafe(|| services.serve(&name, &body, &context)));
        match &served {
            Ok(Ok(_)) => tracing::debug!(id, call = name, "served"),
            Ok(Err(Refusal::Served(failure) | Refusal::Unserved(failure))) => {
                tracing::warn!(id, call = name, reason = failure.message, "refused");
            }
            Err(_) => tracing::error!(id, call = name, "panicked"),
        }
        let outcome = match served {
            Ok(Ok(reply)) => Outcome::Done(reply),
            Ok(Err(Refusal::Served(failure))) => Outcome::Failed(failure),
            Ok(Err(Refusal::Unserved(failure))) => {
                (caller.on_refused)(&failure);
                Outcome::Failed(failure)
            }
            Err(_) => Outcome::Failed(Failure {
                kind: FailureKind::Internal,
                message: "the agent failed inside; please report it with the agent's last messages"
                    .to_owned(),
            }),
        };
        shared.with(|state, now| state.session.reply(id, outcome, now));
    }
}
