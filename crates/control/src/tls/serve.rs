//! A daemon: admits paired controllers, one or a bounded number at a time, and drops everybody else without
//! disturbing them.

use std::{
    collections::HashMap,
    fmt, io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::RecvTimeoutError,
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_admission::{Accepting, Limits, Proof, Strangers};
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{AlertDescription, CertificateError, Connection, Error, ServerConnection};

use super::{
    admission::{AdmissionQueue, Decision},
    io_reason,
    log::{Log, ServeEvent},
    server_config,
    stream::{self, HandshakeError},
};
use crate::{
    agent::{Caller, Served, await_hello, serve_requests},
    link::{Link, Next, Shared},
    message::Message,
    pairing::{self, Client, PairingError, Pin},
    rate::LogLimit,
    service::{Controller, Services},
    session::{HELLO_TIMEOUT, Role, SessionEnd, own_hello},
    usage::Usage,
};

/// Maximum connections without a certificate that was checked.
const STRANGERS: usize = 256;
/// Maximum connections with one, those of controllers that are refused or wait included.
const KNOWN: usize = 256;
/// Maximum connections whose thread has not ended yet, displaced ones included: beyond this the machine cannot
/// keep up, and new connections are closed unread.
const THREADS: usize = 2 * STRANGERS;
/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a session that ends to leave its place.
const ENDING: Duration = Duration::from_secs(1);
/// Poll interval of the stop flag and the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Goodbye reason when the daemon stops.
const STOPPED: &str = "the daemon was stopped";
/// For the thread of a connection that was closed for want of descriptors to give its own back.
const CLOSING: Duration = Duration::from_millis(20);

/// What a daemon does with a controller that connects while others are served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Busy {
    /// Refuses it, naming the running controllers.
    #[default]
    Refuse,
    /// Queues it.
    Queue,
}

/// Configuration of a daemon.
pub struct ServeConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Folder of the identity and the pairings.
    pub identity: PathBuf,
    /// Policy for controllers that connect while others are served.
    pub busy: Busy,
    /// Maximum concurrent sessions; concurrent tests disturb each other, so 1 by default.
    pub(crate) max_sessions: usize,
    /// Maximum queued controllers when `busy` is [`Busy::Queue`].
    pub(crate) max_waiting: usize,
    /// Event callback, for a log. Called from several threads.
    pub on_event: Box<dyn Fn(&ServeEvent) + Send + Sync>,
    /// Counters of what is served.
    pub usage: Usage,
}

/// A daemon that cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", listen_hint(.source))]
    Listen {
        /// Address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The identity cannot be used.
    #[error(transparent)]
    Identity(#[from] PairingError),
    /// A thread that served a controller panicked.
    #[error(
        "a fault inside while serving; the daemon ends so that it is noticed: please report the message above"
    )]
    Panicked,
}

impl Classified for ServeError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Listen { source, .. } => FailureKind::of_listen(source),
            Self::Identity(error) => error.failure_kind(),
            Self::Panicked => FailureKind::Internal,
        }
    }
}

fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ": end the program that does, or choose another port with --listen",
        io::ErrorKind::AddrNotAvailable => ": this host has no such address, `ip address` lists them",
        io::ErrorKind::PermissionDenied => ": choose a port from 1024 on",
        _ => "",
    }
}

impl ServeConfig {
    /// One controller at a time, others refused, no log.
    pub fn new(listen: SocketAddr, identity: impl Into<PathBuf>) -> Self {
        Self {
            listen,
            identity: identity.into(),
            busy: Busy::Refuse,
            max_sessions: 1,
            max_waiting: 16,
            on_event: Box::new(|_| {}),
            usage: Usage::default(),
        }
    }
}

impl fmt::Debug for ServeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeConfig")
            .field("listen", &self.listen)
            .field("identity", &self.identity)
            .field("busy", &self.busy)
            .finish_non_exhaustive()
    }
}

/// A listening daemon.
pub struct Server {
    listener: TcpListener,
    local: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    identity: PathBuf,
    strangers: Mutex<Strangers>,
    /// Sockets of all connections that are not served yet.
    sockets: Mutex<HashMap<u64, Arc<TcpStream>>>,
    admission: AdmissionQueue,
    /// Sessions to be notified when the daemon stops.
    sessions: Mutex<HashMap<u64, Arc<Shared>>>,
    log: Arc<Log>,
    usage: Usage,
    /// A serving thread has panicked.
    panicked: AtomicBool,
}

/// Unregisters a connection from all tables, also on unwind.
struct Registration<'a> {
    server: &'a Server,
    number: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.server.sessions().remove(&self.number);
        self.server.admission.leave(self.number);
        self.server.forget(self.number);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("local", &self.local).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens, and creates an identity when the directory has none yet.
    ///
    /// # Errors
    /// When the port is in use or the identity cannot be used.
    pub fn bind(config: ServeConfig) -> Result<Self, ServeError> {
        let identity = pairing::load_or_make_identity(&config.identity)?;
        let tls = Arc::new(server_config(&identity, &config.identity)?);
        let fail = |source| ServeError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).map_err(fail)?;
        // A connection may be gone between poll and accept.
        listener.set_nonblocking(true).map_err(fail)?;
        let local = listener.local_addr().map_err(fail)?;
        let waiting = if config.busy == Busy::Queue { config.max_waiting } else { 0 };
        let admission = AdmissionQueue::new(config.max_sessions, waiting);
        Ok(Self {
            listener,
            local,
            tls,
            identity: config.identity,
            strangers: Mutex::new(Strangers::new(Limits::of_service(STRANGERS, KNOWN, HANDSHAKE_TIMEOUT))),
            sockets: Mutex::default(),
            admission,
            sessions: Mutex::default(),
            log: Arc::new(Log::new(config.on_event)),
            usage: config.usage,
            panicked: AtomicBool::new(false),
        })
    }

    /// Address it listens on, with the port chosen by the kernel if none was given.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Serves until `stop` is set; each controller gets services of its own, which see only calls that its
    /// pairing's scope permits. Running sessions are then notified and ended.
    ///
    /// # Errors
    /// When the listening socket fails, and when a serving thread panicked.
    pub fn run(
        &self,
        stop: &AtomicBool,
        make_services: impl Fn(&Controller) -> Services + Sync,
    ) -> Result<(), ServeError> {
        let make_services = &make_services;
        let result = thread::scope(|scope| {
            let mut number = 0;
            let result = loop {
                if stop.load(Ordering::SeqCst) || self.panicked.load(Ordering::SeqCst) {
                    break Ok(());
                }
                self.log.report_suppressed(LogLimit::report);
                let (socket, address) = match self.accept() {
                    Ok(Some((socket, address))) => (Arc::new(socket), address),
                    Ok(None) => continue,
                    Err(source) => break Err(ServeError::Listen { address: self.local, source }),
                };
                number += 1;
                if !self.enter(number, &socket, address) {
                    continue;
                }
                let registration = Registration { server: self, number };
                // Out of threads: the connection is dropped.
                let _ = thread::Builder::new().name("serve".into()).spawn_scoped(scope, move || {
                    let registration = registration;
                    let serve = || self.serve(&registration, socket, address, stop, make_services);
                    if catch_unwind(AssertUnwindSafe(serve)).is_err() {
                        self.panicked.store(true, Ordering::SeqCst);
                    }
                });
            };
            for socket in locked(&self.sockets).values() {
                // Already closed is fine.
                let _ = socket.shutdown(Shutdown::Both);
            }
            for shared in self.sessions().values() {
                shared.with(|state, now| state.session.goodbye(STOPPED, None, now));
            }
            result
        });
        self.log.report_suppressed(|limit, _| limit.take());
        if self.panicked.load(Ordering::SeqCst) { Err(ServeError::Panicked) } else { result }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<u64, Arc<Shared>>> {
        locked(&self.sessions)
    }

    fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()) };
        // While nothing can be accepted the listener stays readable.
        let accepting = locked(&self.strangers).is_accepting(Instant::now());
        let mut waited = [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        match poll(if accepting { &mut waited } else { &mut [] }, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match self.listener.accept() {
            // On Linux accepted sockets do not inherit the listener's mode, on other systems they do.
            Ok((socket, address)) => Ok(socket.set_nonblocking(false).is_ok().then_some((socket, address))),
            Err(error) => {
                let next = locked(&self.strangers).refused(&error, Instant::now());
                if let Accepting::Close(number) = next {
                    self.close(number);
                    thread::sleep(CLOSING);
                }
                Ok(None)
            }
        }
    }

    /// Registers a connection, for which another one may be closed. False when it has to be closed at once.
    fn enter(&self, number: u64, socket: &Arc<TcpStream>, address: SocketAddr) -> bool {
        {
            let mut sockets = locked(&self.sockets);
            if sockets.len() >= THREADS {
                return false;
            }
            sockets.insert(number, Arc::clone(socket));
        }
        let displaced = locked(&self.strangers).enter(number, address.ip(), Instant::now());
        if let Some(displaced) = displaced {
            self.close(displaced);
        }
        true
    }

    /// Closes a connection; its thread notices.
    fn close(&self, number: u64) {
        if let Some(socket) = locked(&self.sockets).get(&number) {
            // Already closed is fine.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn forget(&self, number: u64) {
        locked(&self.strangers).leave(number);
        locked(&self.sockets).remove(&number);
    }

    fn reject(&self, address: SocketAddr, reason: String) {
        self.log.write_bounded(&ServeEvent::Rejected { address, reason });
    }

    fn serve(
        &self,
        registration: &Registration<'_>,
        socket: Arc<TcpStream>,
        address: SocketAddr,
        stop: &AtomicBool,
        make_services: impl Fn(&Controller) -> Services,
    ) {
        let number = registration.number;
        let (link, controller) = match self.admit(number, &socket, address, stop) {
            Ok(admitted) => admitted,
            Err(reason) => {
                // Free the session before the next controller tries.
                self.admission.leave(number);
                return self.reject(address, reason);
            }
        };
        drop(socket);
        self.sessions().insert(number, Arc::clone(link.shared()));
        let client = controller.name.clone();
        self.log.write(&ServeEvent::Opened { client: client.clone(), address });
        link.send_short(&Message::Ready);
        let services = make_services(&controller);
        let Served { end, busy } = serve_requests(&link, services, self.caller(controller));
        self.sessions().remove(&number);
        drop(link);
        // The next controller must not share the host with the rest of this test.
        if let Some(busy) = busy {
            while busy.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout)
                && !stop.load(Ordering::SeqCst)
            {}
        }
        self.admission.leave(number);
        let is_failed = !matches!(end, SessionEnd::Closed | SessionEnd::Goodbye { .. });
        self.log.write(&ServeEvent::Closed { client, address, reason: end.to_string(), is_failed });
    }

    fn caller(&self, controller: Controller) -> Caller {
        let (log, client, address) = (Arc::clone(&self.log), controller.name.clone(), controller.address);
        let on_refused = Box::new(move |failure: &Failure| {
            let (client, reason) = (client.clone(), failure.message.clone());
            log.write_bounded(&ServeEvent::Refused { client, address, reason });
        });
        Caller { controller: Some(controller), on_refused, usage: self.usage.clone() }
    }

    /// Takes a new connection through handshake, authentication and admission.
    fn admit(
        &self,
        number: u64,
        socket: &TcpStream,
        address: SocketAddr,
        stop: &AtomicBool,
    ) -> Result<(Link, Controller), String> {
        let mut connection = ServerConnection::new(Arc::clone(&self.tls))
            .map(Connection::from)
            .map_err(|error| error.to_string())?;
        stream::handshake(&mut connection, socket, Instant::now() + HANDSHAKE_TIMEOUT).map_err(explain)?;
        let Client { name: client, scope, .. } = self.client(&connection)?;
        // Not before the proof: with `known` full a paired controller gets the same as one that was displaced.
        if locked(&self.strangers).prove(number) != Proof::Known {
            return Err(format!("\"{client}\": {}", explain(HandshakeError::Ended)));
        }
        let opened = socket.try_clone().and_then(|socket| stream::split(connection, socket));
        let (transport, _) = opened.map_err(|error| io_reason(&error))?;
        let link = Link::start(Role::Agent, own_hello(), HELLO_TIMEOUT, transport)
            .map_err(|error| error.to_string())?;
        let named = |end: SessionEnd| format!("\"{client}\": {end}");
        await_hello(&link).map_err(named)?;
        self.await_admission(&link, number, &client, address, stop)?;
        self.forget(number);
        Ok((link, Controller { name: client, address, scope }))
    }

    fn client(&self, connection: &Connection) -> Result<Client, String> {
        let pin = connection.peer_certificates().and_then(|chain| chain.first()).map(|leaf| Pin::of(leaf));
        let clients = pairing::clients(&self.identity).map_err(|error| error.to_string())?;
        let client = clients.into_iter().find(|client| Some(client.pin) == pin);
        // Revoked since the handshake.
        client.ok_or_else(|| "a certificate that is not paired".to_owned())
    }

    fn await_admission(
        &self,
        link: &Link,
        number: u64,
        client: &str,
        address: SocketAddr,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let mut sent_reason = None;
        let asked = Instant::now();
        loop {
            match self.admission.request(number, client, address) {
                Decision::Admitted => return Ok(()),
                // A controller that starts one test after another must not meet the end of its own last one.
                Decision::Refused(_) if asked.elapsed() < ENDING => {}
                Decision::Refused(reason) => {
                    link.close(&reason, Some(FailureKind::Busy));
                    return Err(format!("\"{client}\": {reason}"));
                }
                Decision::Queued(reason) => {
                    if sent_reason.as_ref() != Some(&reason) {
                        link.send_short(&Message::Queued { reason: reason.clone() });
                        sent_reason = Some(reason);
                    }
                }
            }
            match link.next(Some(Instant::now() + POLL_INTERVAL)) {
                Some(Next::End(end)) => return Err(format!("\"{client}\" left the queue: {end}")),
                Some(Next::Message(_)) => {
                    link.close("a request was sent before admission", None);
                    return Err(format!("\"{client}\" sent a request before admission"));
                }
                None if stop.load(Ordering::SeqCst) => {
                    link.close(STOPPED, None);
                    return Err(format!("\"{client}\": {STOPPED}"));
                }
                None => {}
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handshake failure as reported to the daemon's operator.
fn explain(error: HandshakeError) -> String {
    let text = match error {
        HandshakeError::Timeout => return format!("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs()),
        HandshakeError::Ended => {
            "the connection ended before the handshake did (too many at a time displace each other)"
        }
        HandshakeError::Io(error) => return io_reason(&error),
        HandshakeError::Tls(error) => match error {
            Error::NoCertificatesPresented => "it has no certificate",
            Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                "its certificate is not paired (revoked, or made by another daemon)"
            }
            Error::AlertReceived(AlertDescription::AccessDenied) => {
                "it expected another daemon (its pairing was made elsewhere, or our identity is new)"
            }
            Error::InvalidMessage(_) => "it does not speak TLS",
            other => return other.to_string(),
        },
    };
    text.to_owned()
}
