//! A daemon: paired controllers are served one after the other or some at a
//! time; everybody else is dropped without disturbing them.

use std::{
    collections::HashMap,
    fmt, io,
    net::{SocketAddr, TcpListener, TcpStream},
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

use clearstream_schema::control::{Failure, FailureKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{AlertDescription, CertificateError, Connection, Error, ServerConnection};

use super::{
    admission::{Turn, Turnstile},
    doorway::Doorway,
    io_reason,
    log::{Log, ServeEvent},
    server_config,
    stream::{self, HandshakeError},
};
use crate::{
    agent::{Caller, Served, await_hello, serve_requests},
    link::{Link, Next, Shared},
    message::Message,
    pairing::{self, Client, DEFAULT_PORT, PairingError, Pin},
    rate::LogLimit,
    service::{Controller, Services},
    session::{HELLO_TIMEOUT, Role, SessionEnd, own_hello},
};

/// A connection that is not secure after this long is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the stop flag and the queue are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Last word to the sessions of a daemon that ends.
const STOPPED: &str = "the daemon was stopped";
/// Pause after the system had no socket left for us.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// What a daemon does with a controller that comes while others are served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Busy {
    /// Tells it who is testing and hangs up.
    #[default]
    Refuse,
    /// Lets it wait for its turn.
    Queue,
}

/// How a daemon serves.
pub struct ServeConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Folder of the identity and the pairings.
    pub identity: PathBuf,
    /// What happens to those who come while others are served.
    pub busy: Busy,
    /// Controllers that are served at a time; tests beside each other disturb
    /// each other, so 1 unless told otherwise.
    pub max_sessions: usize,
    /// Controllers that may wait when `busy` is [`Busy::Queue`].
    pub max_waiting: usize,
    /// Told what happens, for a log. Called from several threads.
    pub on_event: Box<dyn Fn(&ServeEvent) + Send + Sync>,
}

/// A daemon that cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", listen_hint(.source))]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
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
        }
    }

    /// Loopback and the usual port: reachable from this host only.
    pub fn default_listen() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT))
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

/// A daemon that listens.
pub struct Server {
    listener: TcpListener,
    local: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    identity: PathBuf,
    doorway: Doorway,
    turnstile: Turnstile,
    /// Sessions to be told when the daemon stops.
    sessions: Mutex<HashMap<u64, Arc<Shared>>>,
    log: Arc<Log>,
    /// A serving thread has panicked.
    panicked: AtomicBool,
}

/// Removes a connection from the daemon's books, also on unwind.
struct Registration<'a> {
    server: &'a Server,
    number: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.server.sessions().remove(&self.number);
        self.server.turnstile.leave(self.number);
        self.server.doorway.leave(self.number);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("local", &self.local).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens, and makes an identity when the folder has none yet.
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
        let turnstile = Turnstile::new(config.max_sessions, waiting);
        Ok(Self {
            listener,
            local,
            tls,
            identity: config.identity,
            doorway: Doorway::default(),
            turnstile,
            sessions: Mutex::default(),
            log: Arc::new(Log::new(config.on_event)),
            panicked: AtomicBool::new(false),
        })
    }

    /// Where it listens, with the port that the kernel chose if it was left to it.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Serves until `stop` is set; each controller gets services of its own, which
    /// see only calls that its pairing's scope permits.
    /// Running sessions are then told and ended.
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
                let (socket, address) = match self.accept(number) {
                    Ok(Some((socket, address))) => (Arc::new(socket), address),
                    Ok(None) => continue,
                    Err(source) => break Err(ServeError::Listen { address: self.local, source }),
                };
                number += 1;
                if !self.doorway.enter(number, Arc::clone(&socket), address) {
                    continue;
                }
                let registration = Registration { server: self, number };
                // Out of threads: the connection is dropped, like any too many.
                let _ = thread::Builder::new().name("serve".into()).spawn_scoped(scope, move || {
                    let registration = registration;
                    let serve = || self.serve(&registration, socket, address, stop, make_services);
                    if catch_unwind(AssertUnwindSafe(serve)).is_err() {
                        self.panicked.store(true, Ordering::SeqCst);
                    }
                });
            };
            self.doorway.close();
            for shared in self.sessions().values() {
                shared.with(|state, now| state.session.goodbye(STOPPED, None, now));
            }
            result
        });
        self.log.report_suppressed(|limit, _| limit.take());
        if self.panicked.load(Ordering::SeqCst) { Err(ServeError::Panicked) } else { result }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<u64, Arc<Shared>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, number: u64) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let mut waited = [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        let look = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
        match poll(&mut waited, Some(&look)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match self.listener.accept() {
            Ok((socket, address)) => {
                // Linux does not hand the listener's mode on, other systems do.
                socket.set_nonblocking(false)?;
                Ok(Some((socket, address)))
            }
            Err(error) => {
                // accept(2): errors of the connection itself, or none left for
                // us. Neither is the end of a daemon.
                if error.kind() != io::ErrorKind::WouldBlock {
                    // What strangers hold is the first to be given up.
                    self.doorway.evict_one(number);
                    thread::sleep(EXHAUSTED);
                }
                Ok(None)
            }
        }
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
        let (link, controller) = match self.let_in(number, &socket, address, stop) {
            Ok(admitted) => admitted,
            Err(reason) => {
                // Whoever may come next must not find the place taken.
                self.turnstile.leave(number);
                return self.reject(address, reason);
            }
        };
        drop(socket);
        self.sessions().insert(number, Arc::clone(link.shared()));
        let client = controller.name.clone();
        self.log.write(&ServeEvent::Opened { client: client.clone(), address });
        link.say(&Message::Ready);
        let services = make_services(&controller);
        let Served { end, busy } = serve_requests(&link, services, self.caller(controller));
        self.sessions().remove(&number);
        drop(link);
        // The next one must not share the host with what is left of this test.
        if let Some(busy) = busy {
            while busy.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) && !stop.load(Ordering::SeqCst) {}
        }
        self.turnstile.leave(number);
        self.log.write(&ServeEvent::Closed { client, address, reason: end.to_string() });
    }

    fn caller(&self, controller: Controller) -> Caller {
        let (log, client, address) = (Arc::clone(&self.log), controller.name.clone(), controller.address);
        let on_refused = Box::new(move |failure: &Failure| {
            let (client, reason) = (client.clone(), failure.message.clone());
            log.write_bounded(&ServeEvent::Refused { client, address, reason });
        });
        Caller { controller: Some(controller), on_refused }
    }

    /// From a bare connection to a paired controller whose turn it is.
    fn let_in(
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
        if !self.doorway.recognise(number) {
            return Err(format!("\"{client}\": {}", explain(HandshakeError::Ended)));
        }
        let opened = socket.try_clone().and_then(|socket| stream::split(connection, socket));
        let (transport, _) = opened.map_err(|error| io_reason(&error))?;
        let link = Link::start(Role::Agent, own_hello(), HELLO_TIMEOUT, transport)
            .map_err(|error| error.to_string())?;
        let named = |end: SessionEnd| format!("\"{client}\": {end}");
        await_hello(&link).map_err(named)?;
        self.await_turn(&link, number, &client, address, stop)?;
        self.doorway.leave(number);
        Ok((link, Controller { name: client, address, scope }))
    }

    fn client(&self, connection: &Connection) -> Result<Client, String> {
        let pin = connection.peer_certificates().and_then(|chain| chain.first()).map(|leaf| Pin::of(leaf));
        let clients = pairing::clients(&self.identity).map_err(|error| error.to_string())?;
        let client = clients.into_iter().find(|client| Some(client.pin) == pin);
        // Revoked in this very moment.
        client.ok_or_else(|| "a certificate that is not paired".to_owned())
    }

    fn await_turn(
        &self,
        link: &Link,
        number: u64,
        client: &str,
        address: SocketAddr,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let mut said = None;
        loop {
            match self.turnstile.ask(number, client, address) {
                Turn::Go => return Ok(()),
                Turn::Refused(reason) => {
                    link.close(&reason, Some(FailureKind::Busy));
                    return Err(format!("\"{client}\": {reason}"));
                }
                Turn::Wait(reason) => {
                    if said.as_ref() != Some(&reason) {
                        link.say(&Message::Queued { reason: reason.clone() });
                        said = Some(reason);
                    }
                }
            }
            match link.next(Some(Instant::now() + LOOK)) {
                Some(Next::End(end)) => return Err(format!("\"{client}\" left the queue: {end}")),
                Some(Next::Message(_)) => {
                    link.close("a request came before its turn", None);
                    return Err(format!("\"{client}\" sent a request before its turn"));
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

/// What a failed handshake tells the daemon's operator.
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
