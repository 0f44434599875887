//! The controller's side: one agent, wherever it runs.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    os::unix::net::UnixStream,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::{
    control::{AgentEvent, Failure, FailureKind, Hello, Outcome, Reply, Request},
    failure::limit,
};

use crate::{
    agent::{Handler, serve_link},
    child::AgentChild,
    error::{PeerError, StartCause},
    link::{Link, Next, Transport},
    session::{EVENT_BYTES, HELLO_TIMEOUT, Incoming, Role, SessionEnd, own_hello},
};

/// A person may be typing a password, and sshd allows 120 s for that by
/// default (sshd_config(5), LoginGraceTime). A child that ends is noticed at once.
const SPAWN_TIMEOUT: Duration = Duration::from_secs(125);
/// How long an agent that was told to end may take.
const SHUTDOWN: Duration = Duration::from_secs(2);
/// How often one who waits for a busy daemon or an answer may give up.
const WAIT_STEP: Duration = Duration::from_millis(250);

/// A controller's handle on an agent. Dropping it ends the agent.
pub struct Peer {
    name: String,
    program: String,
    hello: Hello,
    events: VecDeque<(AgentEvent, usize)>,
    event_bytes: usize,
    dropped_count: u64,
    // Order matters: the link says goodbye before the child is waited for.
    link: Link,
    child: Option<AgentChild>,
}

/// What a caller thinks of waiting for a busy agent: called now and then with
/// the agent's reason.
pub type OnWait<'a> = &'a mut dyn FnMut(&str) -> ControlFlow<()>;

/// Starts an agent as a child that speaks on its standard streams: a local
/// one, one in a lab, or one behind ssh ([`crate::ssh_command`]). `name` is
/// what messages call it.
///
/// # Errors
/// [`PeerError::Start`] with the child's own last words, [`PeerError::Version`].
pub fn spawn(command: Command, name: impl Into<String>) -> Result<Peer, PeerError> {
    let name = name.into();
    let program = command.get_program().to_string_lossy().into_owned();
    let (child, pipes) = AgentChild::start(command).map_err(|error| {
        let cause = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => StartCause::Program,
            _ if limit(&error).is_some() => StartCause::Limit,
            _ => StartCause::Other,
        };
        let message = format!("{}", Failure::of_system(&format!("start {program}"), &error));
        PeerError::Start { name: name.clone(), cause, message }
    })?;
    let transport = Transport::pipes(pipes.stdout, pipes.stdin);
    Peer::open(name, program, transport, Some(child), SPAWN_TIMEOUT, &mut |_| ControlFlow::Continue(()))
}

/// A peer whose agent is a thread of this process, for tests and for trying a
/// handler: the same session over a pair of sockets in memory.
///
/// # Errors
/// When sockets or threads cannot be had.
pub fn memory_pair(handler: impl Handler + 'static) -> Result<Peer, PeerError> {
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
        .spawn(move || drop(serve_link(link, handler)))
        .map_err(fail)?;
    let transport = Transport::unix(ours).map_err(fail)?;
    Peer::open("memory".into(), String::new(), transport, None, HELLO_TIMEOUT, &mut |_| {
        ControlFlow::Continue(())
    })
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("name", &self.name).field("hello", &self.hello).finish_non_exhaustive()
    }
}

impl Peer {
    /// Opens a session and waits until the agent serves requests.
    pub(crate) fn open(
        name: String,
        program: String,
        transport: Transport,
        mut child: Option<AgentChild>,
        hello_timeout: Duration,
        on_wait: OnWait<'_>,
    ) -> Result<Self, PeerError> {
        let link = Link::start(Role::Controller, own_hello(), hello_timeout, transport).map_err(|error| {
            let message = error.to_string();
            PeerError::Start { name: name.clone(), cause: StartCause::Other, message }
        })?;
        let mut hello = None;
        let mut waiting: Option<String> = None;
        let hello = loop {
            let until = waiting.as_ref().map(|_| Instant::now() + WAIT_STEP);
            match link.next(until) {
                Some(Next::Message(Incoming::Hello(said))) => hello = Some(said),
                Some(Next::Message(Incoming::Ready)) => {
                    // `Ready` before `Hello` does not pass the session.
                    if let Some(hello) = hello {
                        break hello;
                    }
                }
                Some(Next::Message(Incoming::Queued { reason })) => waiting = Some(reason),
                Some(Next::Message(_)) | None => {}
                Some(Next::End(end)) => {
                    let words = child.as_mut().map(|child| child.last_words(&program, &end));
                    return Err(PeerError::from_end(&name, end, hello.is_some(), words));
                }
            }
            if let Some(reason) = &waiting
                && on_wait(reason).is_break()
            {
                return Err(PeerError::Stopped { name, reason: reason.clone() });
            }
        };
        Ok(Self {
            name,
            program,
            hello,
            events: VecDeque::new(),
            event_bytes: 0,
            dropped_count: 0,
            link,
            child,
        })
    }

    /// What messages call this peer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the agent said of itself: versions and host name.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Asks the agent for something and waits for its answer, however long it
    /// takes while the agent shows signs of life. Events that come meanwhile
    /// are kept for [`Peer::next_event`].
    ///
    /// # Errors
    /// [`PeerError::Refused`] with the agent's reason, else how it was lost.
    pub fn request(&mut self, request: Request) -> Result<Reply, PeerError> {
        self.request_unless(request, &AtomicBool::new(false))
    }

    /// As [`Peer::request`], but gives up when `stop` is raised. The agent goes
    /// on with what it was asked for, and its answer is thrown away.
    ///
    /// # Errors
    /// As [`Peer::request`], and [`PeerError::Stopped`].
    pub fn request_unless(&mut self, request: Request, stop: &AtomicBool) -> Result<Reply, PeerError> {
        let asked = self.link.shared().with(|state, now| state.session.request(request, now));
        let id = asked.map_err(|error| PeerError::Refused {
            name: self.name.clone(),
            failure: Failure { kind: FailureKind::Invalid, message: error.to_string() },
        })?;
        loop {
            if stop.load(Ordering::Relaxed) {
                let reason = "the answer to a request was not waited for".to_owned();
                return Err(PeerError::Stopped { name: self.name.clone(), reason });
            }
            match self.link.next(Some(Instant::now() + WAIT_STEP)) {
                Some(Next::Message(Incoming::Reply { id: answered, outcome })) if answered == id => {
                    return match outcome {
                        Outcome::Done(reply) => Ok(*reply),
                        Outcome::Failed(failure) => {
                            Err(PeerError::Refused { name: self.name.clone(), failure })
                        }
                    };
                }
                Some(Next::Message(message)) => self.keep(message),
                Some(Next::End(end)) => return Err(self.lost(end)),
                None => {}
            }
        }
    }

    /// The next event, or `None` when none came within `timeout`. Events that
    /// had arrived before the agent was lost are still given out.
    ///
    /// # Errors
    /// How the agent was lost.
    pub fn next_event(&mut self, timeout: Duration) -> Result<Option<AgentEvent>, PeerError> {
        let until = Instant::now() + timeout;
        loop {
            if let Some((event, bytes)) = self.events.pop_front() {
                self.event_bytes -= bytes;
                return Ok(Some(event));
            }
            if self.dropped_count > 0 {
                let count = std::mem::take(&mut self.dropped_count);
                return Ok(Some(AgentEvent::EventsDropped { count }));
            }
            match self.link.next(Some(until)) {
                Some(Next::Message(message)) => self.keep(message),
                Some(Next::End(end)) => return Err(self.lost(end)),
                None => return Ok(None),
            }
        }
    }

    /// Ends the agent in order and waits for it, at most for some seconds.
    pub fn shutdown(mut self) {
        // An agent that cannot answer any more is ended by the drop.
        drop(self.request(Request::Shutdown));
        if let Some(child) = &mut self.child {
            child.end(SHUTDOWN);
        }
    }

    fn keep(&mut self, message: Incoming) {
        // Answers to requests of before and repeated `Ready` mean nothing now.
        let Incoming::Event { event, frame_bytes } = message else {
            return;
        };
        let droppable = matches!(event, AgentEvent::FlowInterval { .. });
        if droppable && self.event_bytes >= EVENT_BYTES {
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
        let words = self.child.as_mut().map(|child| child.last_words(&self.program, &end));
        PeerError::from_end(&self.name, end, true, words)
    }
}
