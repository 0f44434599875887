//! Listening side of this crate's protocol and of rping: one port for
//! measurements and pings, distinguished by the private data of a connection
//! request.

mod background;
mod session;

use std::{
    net::{IpAddr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::Scope,
    time::{Duration, Instant},
};

use clearstream_admission::{Places, Turns};
use clearstream_iwarp::verbs::{Incoming, Listener, Rnic, RnicOptions};

use crate::{
    blocking::STOP_POLL_INTERVAL,
    error::RdmaError,
    negotiation::{ConnectionPurpose, ConnectionRequest, Cookie, PrivateData},
    rping::server::{self as ping_server, PingOptions},
    verbs,
};
pub use background::BackgroundServer;
pub use session::Served;

/// Maximum number of concurrent ping clients.
const MAX_PING_CLIENTS: usize = 64;
/// Maximum number of concurrent connections of timed verbs calls.
const MAX_VERBS_CLIENTS: usize = 64;
/// Maximum number of data connections of a measurement that wait to be
/// accepted.
const MAX_ARRIVALS: usize = 1024;
/// Descriptors of the process for each ping client and each connection of timed
/// calls: some more than both have, so that tests and strangers have the rest.
const DESCRIPTORS_OF_CLIENT: u64 = 32;

/// Options of a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    /// Options for serving pings.
    pub ping: PingOptions,
    /// Whether measurements are served.
    pub measurements: bool,
    /// Stop after the first peer was served.
    pub once: bool,
    /// Longest silence of the client of a measurement
    /// ([`SILENCE_LIMIT`](crate::SILENCE_LIMIT)): then the next one is served.
    pub silence: Duration,
}

/// Purpose of a peer's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// Pings, of rping or of this crate.
    Ping,
    /// A measurement.
    Measurement,
    /// A connection of timed verbs calls.
    Verbs,
}

/// Events of a server.
#[derive(Debug)]
pub enum ServerEvent<'a> {
    /// A peer has connected. Its session ends with one of the other events, or
    /// with the server.
    Started {
        /// Address of the peer.
        peer: SocketAddr,
        /// Purpose of its session.
        kind: SessionKind,
    },
    /// The text of a ping was read from a client.
    PingText {
        /// Address of the client.
        peer: SocketAddr,
        /// The text, with what follows it.
        text: &'a [u8],
    },
    /// A ping client has disconnected.
    PingServed {
        /// Address of the client.
        peer: SocketAddr,
        /// Its pings.
        served: ping_server::Served,
    },
    /// A measurement has ended.
    Served {
        /// Address of the client.
        peer: SocketAddr,
        /// The measurement.
        served: Served,
    },
    /// A connection of timed verbs calls is closed.
    VerbsServed {
        /// Address of the client.
        peer: SocketAddr,
    },
    /// A peer was rejected.
    Rejected {
        /// Address of the peer.
        peer: SocketAddr,
        /// Reason, as sent to the peer, unless the peer is unauthorized.
        reason: &'static str,
    },
    /// Serving a peer failed.
    Failed {
        /// Address of the peer.
        peer: SocketAddr,
        /// Cause.
        error: RdmaError,
    },
}

/// The only peer that is served.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedPeer {
    /// Cookie in the private data of every connection.
    pub cookie: Cookie,
    /// Source address of its connections.
    pub address: IpAddr,
}

/// A listening endpoint.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    options: ServerOptions,
    /// Restriction to one peer; all are served where it is absent.
    expected: Option<ExpectedPeer>,
}

/// Measurement in progress: receives its further connections.
struct Active {
    cookie: Cookie,
    arrivals: SyncSender<(u16, Incoming)>,
}

/// State common to the threads of a server.
struct Shared<'a> {
    server: &'a Server,
    stop: &'a AtomicBool,
    /// The server stops: the peer that it was started for was served.
    done: AtomicBool,
    /// A serving thread panicked.
    panicked: AtomicBool,
    active: Mutex<Option<Active>>,
    turns: Mutex<Turns>,
    ping_clients: Places,
    verbs_clients: Places,
    report: &'a (dyn Fn(ServerEvent<'_>) + Sync),
}

impl Server {
    /// Binds and listens; port 0 selects a free port.
    ///
    /// # Errors
    /// An address that is in use or not local.
    pub fn bind(address: SocketAddr, options: ServerOptions) -> Result<Self, RdmaError> {
        let rnic = Rnic::open(RnicOptions::default())?;
        let listener =
            Listener::bind(&rnic, address).map_err(|source| RdmaError::Listen { address, source })?;
        Ok(Self { listener, options, expected: None })
    }

    /// Restricts the server to one peer: others are dropped without a reply.
    fn expecting(mut self, expected: ExpectedPeer) -> Self {
        self.listener.admit_only(expected.address);
        self.expected = Some(expected);
        self
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.listener.local_address()
    }

    /// Serves until the stop flag is set, or, with `once`, until one peer was
    /// served.
    ///
    /// # Errors
    /// An error of the listening socket.
    pub fn run(&self, stop: &AtomicBool, report: &(dyn Fn(ServerEvent<'_>) + Sync)) -> Result<(), RdmaError> {
        let shared = Shared {
            server: self,
            stop,
            done: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            active: Mutex::new(None),
            turns: Mutex::default(),
            ping_clients: Places::new(MAX_PING_CLIENTS, DESCRIPTORS_OF_CLIENT),
            verbs_clients: Places::new(MAX_VERBS_CLIENTS, DESCRIPTORS_OF_CLIENT),
            report,
        };
        let result: Result<(), RdmaError> = std::thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) && !shared.done.load(Ordering::Relaxed) {
                if let Some(request) = self.listener.accept(Some(STOP_POLL_INTERVAL))? {
                    shared.dispatch(scope, request);
                }
            }
            Ok(())
        });
        if shared.panicked.load(Ordering::Relaxed) {
            return Err(RdmaError::Fault("a serving thread panicked".to_owned()));
        }
        result
    }
}

impl Shared<'_> {
    /// Starts a session for the purpose of a connection request.
    fn dispatch<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, request: Incoming) {
        let private = PrivateData::decode(&request.private_data);
        if let Some(expected) = &self.server.expected
            && !matches!(private, PrivateData::Request(ConnectionRequest { cookie, .. }) if cookie == expected.cookie)
        {
            let (peer, reason) = (request.peer, "without the cookie of the test");
            (self.report)(ServerEvent::Rejected { peer, reason });
            // Dropped without a reply: an unauthorized peer learns nothing
            // about the server.
            return;
        }
        match private {
            PrivateData::OtherVersion => self.reject(request, "another version of clearstream listens here"),
            PrivateData::Foreign if request.private_data.is_empty() => self.ping(scope, request),
            PrivateData::Foreign => {
                self.reject(request, "clearstream listens here: it serves rping and itself");
            }
            PrivateData::Request(ConnectionRequest { purpose: ConnectionPurpose::Ping, .. }) => {
                self.ping(scope, request);
            }
            PrivateData::Request(_) if !self.server.options.measurements => {
                self.reject(request, "only pings are served here: start `clearstream rdma serve`");
            }
            PrivateData::Request(ConnectionRequest { purpose: ConnectionPurpose::Verbs, .. }) => {
                self.verbs_peer(scope, request);
            }
            PrivateData::Request(ConnectionRequest {
                cookie, purpose: ConnectionPurpose::Control, ..
            }) => {
                self.measurement(scope, request, cookie);
            }
            PrivateData::Request(ConnectionRequest {
                cookie,
                purpose: ConnectionPurpose::Data(index),
                ..
            }) => {
                self.join(request, cookie, index);
            }
        }
    }

    fn ping<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, request: Incoming) {
        let Some(place) = self.ping_clients.take(request.peer.ip()) else {
            return self.reject(request, "too many pings at once: try again later");
        };
        self.start(scope, request.peer, "ping", move || {
            let peer = request.peer;
            let options = self.server.options.ping;
            (self.report)(ServerEvent::Started { peer, kind: SessionKind::Ping });
            let each = |text: &[u8]| (self.report)(ServerEvent::PingText { peer, text });
            let served = ping_server::serve(request, options, self.stop, each);
            drop(place);
            self.session_ended(peer, served, |served| {
                let is_last = options.rounds.is_some_and(|rounds| served.rounds >= rounds);
                (ServerEvent::PingServed { peer, served }, is_last)
            });
        });
    }

    fn verbs_peer<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, request: Incoming) {
        let Some(place) = self.verbs_clients.take(request.peer.ip()) else {
            return self.reject(request, "too many timed calls at once: try again later");
        };
        self.start(scope, request.peer, "verbs-peer", move || {
            let peer = request.peer;
            (self.report)(ServerEvent::Started { peer, kind: SessionKind::Verbs });
            let served = verbs::peer::serve(request, self.stop);
            drop(place);
            self.session_ended(peer, served, |()| (ServerEvent::VerbsServed { peer }, false));
        });
    }

    fn measurement<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        request: Incoming,
        cookie: Cookie,
    ) {
        let (peer, began) = (request.peer, Instant::now());
        if !self.turns().may_have(peer.ip(), began) {
            return self.reject(request, "others come first after a test that fell silent: try again later");
        }
        let (sender, arrivals) = sync_channel(MAX_ARRIVALS);
        {
            let mut active = self.active();
            if active.is_some() {
                drop(active);
                return self.reject(request, "busy with another test: try again later");
            }
            *active = Some(Active { cookie, arrivals: sender });
        }
        let is_started = self.start(scope, peer, "measurement", move || {
            (self.report)(ServerEvent::Started { peer, kind: SessionKind::Measurement });
            let silence = self.server.options.silence;
            let served = session::serve(request, &arrivals, silence, self.stop);
            if matches!(served, Err(RdmaError::Silent { .. })) {
                self.turns().wasted(peer.ip(), began.elapsed().min(silence), Instant::now());
            }
            *self.active() = None;
            self.session_ended(peer, served, |served| (ServerEvent::Served { peer, served }, false));
        });
        if !is_started {
            *self.active() = None;
        }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn active(&self) -> MutexGuard<'_, Option<Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a data connection to the measurement in progress.
    fn join(&self, request: Incoming, cookie: Cookie, index: u16) {
        let active = self.active();
        match &*active {
            Some(active) if active.cookie == cookie => {
                // Fails when the measurement accepts no more connections: then
                // it is dropped.
                let _ = active.arrivals.try_send((index, request));
            }
            _ => {
                drop(active);
                self.reject(request, "no such test is in progress here");
            }
        }
    }

    /// Starts the thread of a session; false when there can be none, which ends
    /// this session only.
    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        peer: SocketAddr,
        name: &str,
        body: impl FnOnce() + Send + 'scope,
    ) -> bool {
        // A server that has lost a thread stops, so that the error is noticed.
        let body = move || {
            if catch_unwind(AssertUnwindSafe(body)).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
                self.done.store(true, Ordering::Relaxed);
            }
        };
        let started = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body);
        let failed = started.map(drop).map_err(|error| {
            (self.report)(ServerEvent::Failed { peer, error: RdmaError::Thread(error) });
        });
        failed.is_ok()
    }

    /// Reports the end of a session; `event` also returns whether the server
    /// was started for this only.
    fn session_ended<T>(
        &self,
        peer: SocketAddr,
        served: Result<T, RdmaError>,
        event: impl FnOnce(T) -> (ServerEvent<'static>, bool),
    ) {
        let is_last = match served {
            Ok(served) => {
                let (event, is_last) = event(served);
                (self.report)(event);
                is_last
            }
            Err(RdmaError::Stopped) => false,
            Err(error) => {
                (self.report)(ServerEvent::Failed { peer, error });
                false
            }
        };
        if is_last || self.server.options.once {
            self.done.store(true, Ordering::Relaxed);
        }
    }

    fn reject(&self, request: Incoming, reason: &'static str) {
        (self.report)(ServerEvent::Rejected { peer: request.peer, reason });
        // Fails when the peer has disconnected meanwhile.
        let _ = request.reject(reason.as_bytes());
    }
}
