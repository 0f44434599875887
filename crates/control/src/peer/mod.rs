//! The controller's handle on one agent, wherever it runs.

mod calling;

use std::{
    collections::VecDeque,
    net::IpAddr,
    ops::ControlFlow,
    os::unix::net::UnixStream,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::limit,
};
use clearstream_sys::interruption;

use crate::{
    agent::serve_link,
    call::{CallEvent, Shutdown},
    child::AgentChild,
    encoding::printable,
    error::{PeerError, StartCause},
    link::{Link, Next, Transport},
    message::{Event, Hello},
    service::Services,
    session::{EVENT_BYTES, HELLO_TIMEOUT, Incoming, Role, SessionEnd, own_hello},
    ssh::is_ssh,
    startup::{AGENT_TIMEOUT, LOGIN_TIMEOUT, OnStart, Startup},
};

/// Maximum time for an agent to exit after a shutdown request.
const SHUTDOWN: Duration = Duration::from_secs(2);
/// Characters of an error that quotes what an agent sent.
const SHOWN_ERROR_CHARS: usize = 300;
/// Interval at which a wait for a busy daemon or a reply checks for cancellation.
const WAIT_STEP: Duration = interruption::CHECK_INTERVAL;

/// A controller's handle on an agent. Dropping it ends the agent.
pub struct Peer {
    identity: Arc<Identity>,
    program: String,
    events: VecDeque<(Event, usize)>,
    event_bytes: usize,
    /// Events dropped here, in addition to those that the session dropped.
    dropped_count: u64,
    /// It did not reply to a call in time.
    is_unanswered: bool,
    /// When the command's own time is over, where it has one.
    until: Option<Instant>,
    // Field order matters: the link sends `Goodbye` before the child is waited for.
    link: Link,
    child: Option<AgentChild>,
}

/// Identity of the agent.
#[derive(Debug)]
struct Identity {
    name: String,
    hello: Hello,
}

/// An event of an agent.
#[derive(Debug, Clone)]
pub struct PeerEvent {
    event: Event,
    source: Arc<Identity>,
}

/// Callback of a wait for a busy agent: called at intervals with the agent's reason; breaking cancels the
/// wait.
pub type OnWait<'a> = &'a mut dyn FnMut(&str) -> ControlFlow<()>;

/// Starts an agent as a child that uses its standard streams: a local one, one in a lab, or one behind ssh
/// ([`crate::ssh_command`]). `name` is its name in messages.
///
/// # Errors
/// [`PeerError::Start`] with the child's captured standard error, [`PeerError::Version`].
pub fn spawn(command: Command, name: impl Into<String>) -> Result<Peer, PeerError> {
    spawn_watched(command, name, &mut |_| true)
}

/// As [`spawn`]; `on_start` is called when a step takes long.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_watched(
    command: Command,
    name: impl Into<String>,
    on_start: OnStart<'_>,
) -> Result<Peer, PeerError> {
    let name = name.into();
    let program = command.get_program().to_string_lossy().into_owned();
    let (child, pipes) = AgentChild::start(command).map_err(|error| {
        let what = format!("start {program}");
        match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => {
                let message = Failure::of_system(&what, &error).to_string();
                PeerError::Start { name: name.clone(), cause: StartCause::Program, message }
            }
            _ => not_started(&name, &what, &error),
        }
    })?;
    let transport = Transport { skips_text: true, ..Transport::pipes(pipes.stdout, pipes.stdin) };
    let startup = Startup::new(is_ssh(&program), child.pid(), Instant::now(), on_start);
    let opening = Opening { program, child: Some(child), startup: Some(startup) };
    Peer::open(name, transport, LOGIN_TIMEOUT, opening, &mut |_| ControlFlow::Continue(()))
}

/// Parameters of opening a session beside its transport.
#[derive(Default)]
pub(crate) struct Opening<'a> {
    /// The started program, for messages.
    program: String,
    /// The process of the agent, where it is a child.
    child: Option<AgentChild>,
    /// Time limits of its start.
    startup: Option<Startup<'a>>,
}

/// A peer whose agent is a thread of this process, for tests and for trying a
/// service: the same session over a pair of sockets in memory.
///
/// # Errors
/// When sockets or threads cannot be had.
pub fn memory_pair(services: Services) -> Result<Peer, PeerError> {
    let fail = |error: std::io::Error| PeerError::Start {
        name: "memory".to_owned(),
        cause: StartCause::Other,
        message: error.to_string(),
    };
    let (ours, theirs) = UnixStream::pair().map_err(fail)?;
    let link = Transport::unix(theirs)
        .and_then(|transport| Link::start(Role::Agent, own_hello(), HELLO_TIMEOUT, transport))
        .map_err(fail)?;
    thread::Builder::new()
        .name("memory-agent".into())
        .spawn(move || drop(serve_link(link, services)))
        .map_err(fail)?;
    let transport = Transport::unix(ours).map_err(fail)?;
    Peer::open("memory".into(), transport, HELLO_TIMEOUT, Opening::default(), &mut |_| {
        ControlFlow::Continue(())
    })
}

/// A system error before there was a session.
fn not_started(name: &str, what: &str, error: &std::io::Error) -> PeerError {
    let cause = if limit(error).is_some() { StartCause::Limit } else { StartCause::Other };
    let message = Failure::of_system(what, error).to_string();
    PeerError::Start { name: name.to_owned(), cause, message }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Peer {
    /// Opens a session and waits until the agent serves requests.
    pub(crate) fn open(
        name: String,
        transport: Transport,
        hello_timeout: Duration,
        opening: Opening<'_>,
        on_wait: OnWait<'_>,
    ) -> Result<Self, PeerError> {
        let Opening { program, mut child, mut startup } = opening;
        let link = Link::start(Role::Controller, own_hello(), hello_timeout, transport)
            .map_err(|error| not_started(&name, "start a session", &error))?;
        let mut hello = None;
        let mut hello_at = None;
        let mut waiting: Option<String> = None;
        let hello = loop {
            match link.next(Some(Instant::now() + WAIT_STEP)) {
                Some(Next::Message(Incoming::Hello(received))) => {
                    hello = Some(received);
                    hello_at = Some(Instant::now());
                }
                Some(Next::Message(Incoming::Ready)) => {
                    // `Ready` before `Hello` does not pass the session.
                    if let Some(hello) = hello {
                        break hello;
                    }
                }
                Some(Next::Message(Incoming::Queued { reason })) => waiting = Some(reason),
                Some(Next::Message(_)) | None => {}
                Some(Next::End(end)) => {
                    let text = link.skipped_text();
                    let exit = child.as_mut().map(|child| child.exit_report(&program, &end));
                    return Err(PeerError::from_end(&name, end, hello.is_some(), exit, text.as_deref()));
                }
            }
            if hello.is_none()
                && let (Some(startup), Some(child)) = (&mut startup, &child)
                && startup.is_over(child.login(), Instant::now())
            {
                link.give_up();
            }
            // An agent sends what follows at once. An echoing peer would return our own greeting forever.
            let limit = hello_timeout.min(AGENT_TIMEOUT);
            if waiting.is_none() && hello_at.is_some_and(|at: Instant| at.elapsed() >= limit) {
                return Err(PeerError::Start {
                    name,
                    cause: StartCause::NotAnAgent,
                    message:
                        "not a clearstream agent: it greeted and never became ready (does it echo its input?)"
                            .to_owned(),
                });
            }
            if interruption::is_requested() {
                // It has begun nothing that it would have to end.
                if let Some(child) = &mut child {
                    child.end(Duration::ZERO);
                }
                let reason = waiting.unwrap_or_else(|| "for its agent to start".to_owned());
                return Err(PeerError::Stopped { name, reason });
            }
            if let Some(reason) = &waiting
                && on_wait(reason).is_break()
            {
                return Err(PeerError::Stopped { name, reason: reason.clone() });
            }
        };
        Ok(Self {
            identity: Arc::new(Identity { name, hello }),
            program,
            events: VecDeque::new(),
            event_bytes: 0,
            dropped_count: 0,
            is_unanswered: false,
            until: None,
            link,
            child,
        })
    }

    /// The address that ssh connected to, where it started the agent and reports it: not
    /// through a proxy, a jump host or a shared connection.
    pub fn login_address(&self) -> Option<IpAddr> {
        self.child.as_ref().and_then(|child| child.login()?.address)
    }

    /// First line of the text that came before the agent's own messages, if any did.
    pub fn skipped_text(&self) -> Option<String> {
        self.link.skipped_text()
    }

    /// The peer's name in messages.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Renames the peer, to the name that a list of hosts gives it.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.identity = Arc::new(Identity { name: name.to_owned(), hello: self.identity.hello.clone() });
        self
    }

    /// The agent's `Hello`: versions and host name.
    pub fn hello(&self) -> &Hello {
        &self.identity.hello
    }

    /// The next event, or `None` when none came within `timeout`. Events received before the agent was lost
    /// are still returned.
    ///
    /// # Errors
    /// How the agent was lost.
    pub fn next_event(&mut self, timeout: Duration) -> Result<Option<PeerEvent>, PeerError> {
        self.next_event_where(timeout, |_| true)
    }

    /// The next event of one type, as [`Peer::next_event`]; others are kept.
    ///
    /// # Errors
    /// How the agent was lost, and [`PeerError::Skew`].
    pub fn next_event_of<E: CallEvent>(&mut self, timeout: Duration) -> Result<Option<E>, PeerError> {
        match self.next_event_where(timeout, Event::is::<E>)? {
            Some(event) => event.read(),
            None => Ok(None),
        }
    }

    fn next_event_where(
        &mut self,
        timeout: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<PeerEvent>, PeerError> {
        let until = Instant::now() + timeout;
        // Events before this index do not match.
        let mut place = 0;
        loop {
            while let Some((event, bytes)) = self.events.get(place) {
                if wanted(event) {
                    self.event_bytes -= bytes;
                    let source = Arc::clone(&self.identity);
                    return Ok(self.events.remove(place).map(|(event, _)| PeerEvent { event, source }));
                }
                place += 1;
            }
            if interruption::is_over() {
                let reason = "the wait for an event was cancelled".to_owned();
                return Err(PeerError::Stopped { name: self.name().to_owned(), reason });
            }
            match self.link.next(Some(until.min(Instant::now() + WAIT_STEP))) {
                Some(Next::Message(message)) => self.keep(message),
                Some(Next::End(end)) => return Err(self.lost(end)),
                None if Instant::now() < until => {}
                None => return Ok(None),
            }
        }
    }

    /// Droppable events that were dropped since the session began, because one side
    /// was too slow: their series have gaps.
    pub fn dropped_event_count(&self) -> u64 {
        self.link.shared().lock().session.dropped_event_count().saturating_add(self.dropped_count)
    }

    /// Shuts the agent down gracefully and waits for it, a few seconds at most.
    pub fn shutdown(mut self) {
        // An agent that no longer responds is ended by the drop.
        drop(self.call(&Shutdown {}));
        if let Some(child) = &mut self.child {
            child.end(SHUTDOWN);
        }
    }

    fn keep(&mut self, message: Incoming) {
        // Late replies and a repeated `Ready` carry nothing.
        let Incoming::Event { event, frame_bytes } = message else {
            return;
        };
        if event.droppable && self.event_bytes >= EVENT_BYTES {
            self.dropped_count += 1;
            return;
        }
        if self.event_bytes >= 4 * EVENT_BYTES {
            return self.link.close("more events than fit into memory", None);
        }
        self.event_bytes += frame_bytes;
        self.events.push_back((event, frame_bytes));
    }

    fn lost(&mut self, end: SessionEnd) -> PeerError {
        let exit = self.child.as_mut().map(|child| child.exit_report(&self.program, &end));
        PeerError::from_end(self.name(), end, true, exit, None)
    }

    fn invalid(&self, message: String) -> PeerError {
        let failure = Failure { kind: FailureKind::Invalid, message };
        PeerError::Refused { name: self.name().to_owned(), failure }
    }
}

impl Identity {
    fn skew(&self, what: &str, error: &serde_json::Error) -> PeerError {
        let ours = own_hello();
        let reason = printable(&error.to_string(), SHOWN_ERROR_CHARS);
        let message = format!(
            "the {what} of clearstream {} on {} cannot be read by clearstream {} on {} ({reason}): \
             install the same version on both",
            self.hello.version, self.hello.host, ours.version, ours.host
        );
        PeerError::Skew { name: self.name.clone(), message }
    }
}

impl PeerEvent {
    /// Decodes it as an event of this type; `None` when it is of another.
    ///
    /// # Errors
    /// [`PeerError::Skew`] when an event of this name has another format.
    pub fn read<E: CallEvent>(&self) -> Result<Option<E>, PeerError> {
        if !self.event.is::<E>() {
            return Ok(None);
        }
        let read = self.event.body.read().map(Some);
        read.map_err(|error| self.source.skew(&format!("event `{}`", E::NAME), &error))
    }

    /// Whether it is an event of this type.
    pub fn is<E: CallEvent>(&self) -> bool {
        self.event.is::<E>()
    }
}

#[cfg(test)]
mod silence_tests;
#[cfg(test)]
mod tests;
