//! The listening side: pings and tests come to one port, and private data
//! tells them apart.

pub mod session;

use std::{
    net::{IpAddr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::{JoinHandle, Scope},
    time::Duration,
};

use clearstream_iwarp::verbs::{Incoming, Listener, ProtectionDomain, Rnic, RnicOptions};

use crate::{
    error::RdmaError,
    negotiation::{Carries, Cookie, Opening, Private},
    perftest,
    rping::server::{self as ping_server, PingService},
};

/// How often it is looked whether to stop.
const STOP_PERIOD: Duration = Duration::from_millis(50);
/// Clients of pings at the same time, at most.
const MOST_PINGS: usize = 64;
/// Connections of a test that wait to be taken, at most.
const MOST_ARRIVALS: usize = 1024;

/// What a server does.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// How pings are answered.
    pub ping: PingService,
    /// Tests are served as well.
    pub tests: bool,
    /// End after the first peer that was served.
    pub once: bool,
}

/// What a server has to tell.
#[derive(Debug)]
pub enum Told<'a> {
    /// A text was read from a client.
    Text {
        /// Whose.
        peer: SocketAddr,
        /// The text, with what follows it.
        text: &'a [u8],
    },
    /// A client has left.
    Pinged {
        /// Which.
        peer: SocketAddr,
        /// What was done for it.
        served: ping_server::Served,
    },
    /// A test is over.
    Tested {
        /// Whose.
        peer: SocketAddr,
        /// What was done.
        served: session::Served,
    },
    /// A client of perftest has left.
    Perftest {
        /// Which.
        peer: SocketAddr,
        /// What was done for it.
        served: perftest::server::Served,
    },
    /// A peer was turned away.
    Turned {
        /// Which.
        peer: SocketAddr,
        /// Why.
        reason: &'static str,
    },
    /// Serving a peer failed.
    Failed {
        /// Which.
        peer: SocketAddr,
        /// Why.
        error: RdmaError,
    },
}

/// Whom alone a server serves.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// In the private data of every connection.
    pub cookie: Cookie,
    /// Where connections come from.
    pub peer: IpAddr,
}

/// A listening endpoint.
#[derive(Debug)]
pub struct Server {
    domain: ProtectionDomain,
    listener: Listener,
    service: Service,
    /// Everybody is served where it is absent.
    expected: Option<Expected>,
}

/// A test that goes on: where its further connections are awaited.
struct Active {
    cookie: Cookie,
    arrivals: SyncSender<(u16, Incoming)>,
}

/// What the threads of a server share.
struct Shared<'a> {
    server: &'a Server,
    stop: &'a AtomicBool,
    /// A peer was served and `once` was asked for.
    done: AtomicBool,
    /// A serving thread has panicked.
    panicked: AtomicBool,
    active: Mutex<Option<Active>>,
    pings: AtomicUsize,
    tell: &'a (dyn Fn(Told<'_>) + Sync),
}

impl Server {
    /// Binds and listens; port 0 takes a free one.
    ///
    /// # Errors
    /// An address that is in use or is not this host's.
    pub fn bind(address: SocketAddr, service: Service) -> Result<Self, RdmaError> {
        let rnic = Rnic::open(RnicOptions::default())?;
        let listener =
            Listener::bind(&rnic, address).map_err(|source| RdmaError::Listen { address, source })?;
        Ok(Self { domain: ProtectionDomain::new(&rnic), listener, service, expected: None })
    }

    /// The same, for one peer: others are dropped without a reply.
    fn expecting(mut self, expected: Expected) -> Self {
        self.listener.admit_only(expected.peer);
        self.expected = Some(expected);
        self
    }

    /// Where it listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.listener.local_address()
    }

    /// Serves until `stop` is raised, or, where that was asked for, until one
    /// peer was served.
    ///
    /// # Errors
    /// A listening socket that fails.
    pub fn run(&self, stop: &AtomicBool, tell: &(dyn Fn(Told<'_>) + Sync)) -> Result<(), RdmaError> {
        let shared = Shared {
            server: self,
            stop,
            done: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            active: Mutex::new(None),
            pings: AtomicUsize::new(0),
            tell,
        };
        let result: Result<(), RdmaError> = std::thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) && !shared.done.load(Ordering::Relaxed) {
                if let Some(request) = self.listener.accept(Some(STOP_PERIOD))? {
                    shared.meet(scope, request)?;
                }
            }
            Ok(())
        });
        if shared.panicked.load(Ordering::Relaxed) {
            return Err(RdmaError::Fault("a fault inside while serving".to_owned()));
        }
        result
    }
}

impl Shared<'_> {
    /// Finds out what a peer wants, and starts it.
    fn meet<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        request: Incoming,
    ) -> Result<(), RdmaError> {
        let opening = Opening::decode(&request.private_data);
        if let Some(expected) = &self.server.expected
            && !matches!(opening, Private::Ours(Opening { cookie, .. }) if cookie == expected.cookie)
        {
            (self.tell)(Told::Turned { peer: request.peer, reason: "without the cookie of the test" });
            // Dropped: a stranger learns nothing of who listens here.
            return Ok(());
        }
        match opening {
            Private::Version => self.turn_away(request, "another version of clearstream listens here"),
            Private::Other if request.private_data.is_empty() => return self.ping(scope, request),
            Private::Other => self.turn_away(request, "clearstream listens here: it serves rping and itself"),
            Private::Ours(Opening { carries: Carries::Pings, .. }) => return self.ping(scope, request),
            Private::Ours(_) if !self.server.service.tests => {
                self.turn_away(request, "only pings are served here: start `clearstream rdma serve`");
            }
            Private::Ours(Opening { cookie, carries: Carries::Messages }) => {
                return self.test(scope, request, cookie);
            }
            Private::Ours(Opening { cookie, carries: Carries::Data(lane) }) => {
                self.join(request, cookie, lane)
            }
        }
        Ok(())
    }

    fn ping<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        request: Incoming,
    ) -> Result<(), RdmaError> {
        if self.pings.fetch_add(1, Ordering::Relaxed) >= MOST_PINGS {
            self.pings.fetch_sub(1, Ordering::Relaxed);
            self.turn_away(request, "too many pings at once: try again later");
            return Ok(());
        }
        self.start(scope, "ping", move || {
            let peer = request.peer;
            let service = self.server.service.ping;
            let each = |_, text: &[u8]| (self.tell)(Told::Text { peer, text });
            let served = ping_server::serve(&self.server.domain, request, service, self.stop, each);
            self.pings.fetch_sub(1, Ordering::Relaxed);
            self.ended(peer, served, |served| {
                let all = service.rounds.is_some_and(|rounds| served.rounds >= rounds);
                (Told::Pinged { peer, served }, all)
            });
        })
    }

    fn test<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        request: Incoming,
        cookie: Cookie,
    ) -> Result<(), RdmaError> {
        let (sender, arrivals) = sync_channel(MOST_ARRIVALS);
        {
            let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
            if active.is_some() {
                drop(active);
                self.turn_away(request, "busy with another test: try again later");
                return Ok(());
            }
            *active = Some(Active { cookie, arrivals: sender });
        }
        self.start(scope, "test", move || {
            let peer = request.peer;
            let served = session::serve(&self.server.domain, request, &arrivals, self.stop);
            *self.active.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.ended(peer, served, |served| (Told::Tested { peer, served }, false));
        })
    }

    /// One more connection of the test that goes on.
    fn join(&self, request: Incoming, cookie: Cookie, lane: u16) {
        let active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        match &*active {
            Some(active) if active.cookie == cookie => {
                // A test that takes no more of them drops what is left.
                let _ = active.arrivals.try_send((lane, request));
            }
            _ => {
                drop(active);
                self.turn_away(request, "no such test goes on here");
            }
        }
    }

    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        body: impl FnOnce() + Send + 'scope,
    ) -> Result<(), RdmaError> {
        // A server that has lost a thread ends, so that it is noticed.
        let body = move || {
            if catch_unwind(AssertUnwindSafe(body)).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
                self.done.store(true, Ordering::Relaxed);
            }
        };
        let builder = std::thread::Builder::new().name(name.to_owned());
        builder.spawn_scoped(scope, body).map(drop).map_err(RdmaError::Thread)
    }

    /// Tells how it went with a peer; the server is done when one was served
    /// and that is all it was started for.
    fn ended<T>(
        &self,
        peer: SocketAddr,
        served: Result<T, RdmaError>,
        told: impl FnOnce(T) -> (Told<'static>, bool),
    ) {
        let all = match served {
            Ok(served) => {
                let (told, all) = told(served);
                (self.tell)(told);
                all
            }
            Err(RdmaError::Stopped) => false,
            Err(error) => {
                (self.tell)(Told::Failed { peer, error });
                false
            }
        };
        if all || self.server.service.once {
            self.done.store(true, Ordering::Relaxed);
        }
    }

    fn turn_away(&self, request: Incoming, reason: &'static str) {
        (self.tell)(Told::Turned { peer: request.peer, reason });
        // A peer that has gone meanwhile needs no answer.
        let _ = request.reject(reason.as_bytes());
    }
}

/// A server in a thread, until it is dropped: the far end of a test that an
/// agent makes.
#[derive(Debug)]
pub struct FarEnd {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FarEnd {
    /// Listens on a free port of the address, for the tests of one peer.
    ///
    /// # Errors
    /// An address that is not this host's.
    pub fn open(address: IpAddr, expected: Expected) -> Result<Self, RdmaError> {
        let service = Service { ping: PingService::default(), tests: true, once: false };
        let server = Server::bind(SocketAddr::new(address, 0), service)?.expecting(expected);
        let stop = Arc::new(AtomicBool::new(false));
        let (address, raised) = (server.local_address(), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("rdma-far".to_owned())
            // What goes wrong is told to the near end, which tells people.
            .spawn(move || drop(server.run(&raised, &|_| {})))
            .map_err(RdmaError::Thread)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
