//! The agent's side: requests are served by [`Services`] on a thread separate from the session's, so that the
//! session stays alive during a long call and ends at once when the controller is gone.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
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
    message::{Body, Hello, Message, Outcome},
    service::{CallContext, Controller, Refusal, Services},
    session::{HELLO_TIMEOUT, Incoming, Role, SessionEnd, own_hello},
    usage::Usage,
};

/// Maximum time for services to end after their controller has gone: with
/// [`crate::session::PEER_TIMEOUT`] before it, everything is over within 5 s.
const SERVICES_GRACE: Duration = Duration::from_millis(500);

/// Reports a request that was rejected before it reached a service.
pub(crate) type OnRefused = Box<dyn Fn(&Failure) + Send>;

/// The controller that an agent serves, and where its rejected requests are reported.
pub(crate) struct Caller {
    /// The paired controller of a TLS session; no other session is limited by a scope.
    pub(crate) controller: Option<Controller>,
    /// Logs a rejected request.
    pub(crate) on_refused: OnRefused,
    /// Counts what is served.
    pub(crate) usage: Usage,
}

impl Caller {
    /// The account that started the agent: not limited by a scope.
    fn starter() -> Self {
        Self { controller: None, on_refused: Box::new(|_| {}), usage: Usage::default() }
    }
}

/// Serves one controller over this process's standard input and output; returns when the controller has gone:
/// by `Shutdown`, end of file or timeout. The process should end then; a call that still runs after
/// half a second ends with it.
///
/// # Errors
/// The reason the session ended, unless it was a graceful close.
pub fn serve_stdio(services: Services) -> Result<(), SessionEnd> {
    if io::stdin().is_terminal() {
        let reason = "an agent is started by a controller, never by hand: try `clearstream flow HOST`";
        return Err(SessionEnd::Transport(reason.to_owned()));
    }
    let open = || -> io::Result<Link> {
        let reader = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let writer = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        // sshd sets it for what it starts: client and its port, server and its port (ssh(1)).
        let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
        let ssh_address = connection.split_whitespace().nth(2).and_then(|address| address.parse().ok());
        let hello = Hello { ssh_address, ..own_hello() };
        Link::start(Role::Agent, hello, HELLO_TIMEOUT, Transport::pipes(reader, writer))
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

/// Result of serving one session.
pub(crate) struct Served {
    /// Why the session ended.
    pub(crate) end: SessionEnd,
    /// Yields a message once the services have been dropped, if they have not been dropped yet.
    pub(crate) busy: Option<Receiver<()>>,
}

/// Serves the process that started this agent, from its `Hello` on.
pub(crate) fn serve_link(link: Link, services: Services) -> Served {
    match await_hello(&link) {
        Ok(()) => {
            link.send_short(&Message::Ready);
            serve_requests(&link, services, Caller::starter())
        }
        Err(end) => Served { end, busy: None },
    }
}

/// Waits for the controller's `Hello`.
pub(crate) fn await_hello(link: &Link) -> Result<(), SessionEnd> {
    match link.next(None) {
        Some(Next::End(end)) => Err(end),
        // The first message that a session lets through is a `Hello`.
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
    let replied: Arc<AtomicU64> = Arc::default();
    let count = Arc::clone(&replied);
    let worker = thread::Builder::new().name("agent".into()).spawn(move || {
        let _entered = span.entered();
        work(services, &caller, &inbox, &shared, &count);
        // The controller may be long gone; then nobody needs the event.
        let _ = dropped.send(());
    });
    if let Err(error) = worker {
        let failure = Failure::of_system("start a thread for calls", &error);
        link.close(&failure.message, Some(failure.kind));
    }
    let end = pass_requests(link, &requests, &replied);
    tracing::info!(reason = %end, "session ended");
    drop(requests);
    let busy = match busy.recv_timeout(SERVICES_GRACE) {
        Err(RecvTimeoutError::Timeout) => Some(busy),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => None,
    };
    Served { end, busy }
}

/// A request queued for the services.
struct Request {
    id: u64,
    name: String,
    body: Body,
    /// Replies sent before it arrived.
    replied_count: u64,
}

fn pass_requests(link: &Link, requests: &Sender<Request>, replied: &AtomicU64) -> SessionEnd {
    loop {
        match link.next(None) {
            Some(Next::Message(Incoming::Request { id, name, body })) if name == Shutdown::NAME => {
                // The services' thread ends with the session; one that has ended needs no notice.
                let replied_count = replied.load(Ordering::Acquire);
                let _ = requests.send(Request { id, name, body, replied_count });
                // An empty object has a form in JSON.
                let outcome = Body::of(&Done {}).map(Outcome::Done);
                link.shared().with(|state, now| outcome.map(|done| state.session.reply(id, done, now)).ok());
                link.close("the controller requested a shutdown", None);
            }
            Some(Next::Message(Incoming::Request { id, name, body })) => {
                let replied_count = replied.load(Ordering::Acquire);
                if requests.send(Request { id, name, body, replied_count }).is_err() {
                    link.close("the agent has failed", Some(FailureKind::Internal));
                }
            }
            Some(Next::End(end)) => return end,
            // A controller sends nothing else.
            Some(Next::Message(_)) | None => {}
        }
    }
}

/// Thread of the services: ends, and drops them, when the session ends.
fn work(
    services: Services,
    caller: &Caller,
    inbox: &Receiver<Request>,
    shared: &Arc<Shared>,
    replied: &AtomicU64,
) {
    let events = EventSender::new(Arc::clone(shared), caller.usage.clone());
    let context = CallContext::new(&events, caller.controller.as_ref());
    while let Ok(Request { id, name, body, replied_count }) = inbox.recv() {
        // A request sent before the last reply could be read proves no receipt of it.
        let is_contact = replied_count == replied.load(Ordering::Acquire);
        if name == Shutdown::NAME {
            if is_contact {
                // A service that panics here is dropped all the same.
                let _ = catch_unwind(AssertUnwindSafe(|| services.contact()));
            }
            return;
        }
        // Requested, but the controller has gone since.
        if !events.is_open() {
            return;
        }
        tracing::debug!(id, call = name, "called");
        let served = catch_unwind(AssertUnwindSafe(|| {
            if is_contact {
                services.contact();
            }
            services.serve(&name, &body, &context)
        }));
        match &served {
            Ok(Ok(_)) => tracing::debug!(id, call = name, "served"),
            Ok(Err(Refusal::Served(failure) | Refusal::Unserved(failure))) => {
                tracing::warn!(id, call = name, reason = failure.message, "refused");
            }
            Err(_) => tracing::error!(id, call = name, "panicked"),
        }
        if !matches!(served, Ok(Err(Refusal::Unserved(_)))) {
            caller.usage.called(&name, matches!(served, Ok(Ok(_))));
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
        replied.fetch_add(1, Ordering::Release);
        shared.with(|state, now| state.session.reply(id, outcome, now));
    }
}
