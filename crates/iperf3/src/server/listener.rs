//! The listening port: accepts the client of the next test, streams of the running one, and refuses clients
//! while the server is busy. A client has shown its right when its parameters are valid: who sends less does not
//! have the server's only place, and none can block the others.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clearstream_admission::{Limits, Lobby, Step, Turns, Waiting, fill};
use clearstream_schema::control::{Failure, FailureKind};
use socket2::{Domain, Protocol, Socket, Type};

use super::machine::{ServerEvent, ServerMachine};
use crate::{
    error::{ProtocolError, code, error_message},
    parameters::Parameters,
    protocol::{COOKIE_BYTES, Cookie, State},
};

/// Time for a connection's cookie, and a client's parameters.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum connections without these.
const PENDING_MAX: usize = 64;
/// Interval at which the thread checks for a new listener or the end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Refusals that wait to be reported; further ones are not.
const REPORTED_MAX: usize = 64;

/// Options inherited by accepted sockets: the window scale is fixed at the handshake.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ListenOptions {
    pub(super) window_bytes: Option<u32>,
    pub(super) mss_bytes: Option<u32>,
}

/// A stream of a test.
#[derive(Debug)]
pub(super) struct Connection {
    /// Order of arrival.
    pub(super) number: u64,
    pub(super) stream: TcpStream,
}

/// The client of a test, with valid parameters.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) cookie: Cookie,
    pub(super) parameters: Box<Parameters>,
    pub(super) machine: ServerMachine,
}

/// What came to an idle server.
#[derive(Debug)]
pub(super) enum Arrival {
    /// The client of the next test; the server is busy from then on.
    Client(Client),
    /// One whose parameters were invalid.
    Refused(SocketAddr, Failure),
}

/// Admission policy.
#[derive(Debug)]
enum Admission {
    /// The next one is the client of a test.
    Idle,
    Busy,
    /// Connections with this cookie are streams of the test.
    Streams(Cookie, Sender<Connection>),
}

type Opened = Sender<io::Result<()>>;

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    admission: Mutex<Admission>,
    reopen: Mutex<Option<(ListenOptions, Opened)>>,
    turns: Mutex<Turns>,
}

/// The listening port with its thread.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    clients: Receiver<Arrival>,
    thread: Option<JoinHandle<()>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The state is consistent after each change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(address: SocketAddr, options: ListenOptions) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if let Some(bytes) = options.window_bytes {
        socket.set_recv_buffer_size(bytes as usize)?;
        socket.set_send_buffer_size(bytes as usize)?;
    }
    if let Some(bytes) = options.mss_bytes {
        socket.set_tcp_mss(bytes)?;
    }
    socket.bind(&address.into())?;
    socket.listen(256)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Listener {
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let listener = listen(address, ListenOptions::default())?;
        let address = listener.local_addr()?.as_socket().unwrap_or(address);
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            admission: Mutex::new(Admission::Idle),
            reopen: Mutex::new(None),
            turns: Mutex::default(),
        });
        let (sender, clients) = mpsc::sync_channel(REPORTED_MAX);
        let accept_loop = AcceptLoop {
            address,
            listener: Some(listener),
            lobby: Lobby::new(Limits::of_service(PENDING_MAX, 0, HELLO_TIMEOUT)),
            shared: Arc::clone(&shared),
            clients: sender,
        };
        let thread =
            thread::Builder::new().name("iperf3-listener".into()).spawn(move || accept_loop.run())?;
        Ok(Self { address, shared, clients, thread: Some(thread) })
    }

    /// Waits for the client of the next test.
    pub(super) fn client(&self, timeout: Duration) -> Option<Arrival> {
        self.clients.recv_timeout(timeout).ok()
    }

    /// The client was ended for its silence: others come first.
    pub(super) fn wasted(&self, address: IpAddr, held: Duration) {
        locked(&self.shared.turns).wasted(address, held, Instant::now());
    }

    /// Admits the streams of a test.
    pub(super) fn admit_streams(&self, cookie: Cookie) -> Receiver<Connection> {
        let (sender, streams) = mpsc::channel();
        *locked(&self.shared.admission) = Admission::Streams(cookie, sender);
        streams
    }

    /// Stops admitting streams: all are connected.
    pub(super) fn close_to_streams(&self) {
        *locked(&self.shared.admission) = Admission::Busy;
    }

    /// Admits the next client: the test is over.
    pub(super) fn admit_client(&self) {
        *locked(&self.shared.admission) = Admission::Idle;
    }

    /// Reopens the listener with options that accepted sockets inherit.
    pub(super) fn reopen(&self, options: ListenOptions) -> io::Result<()> {
        let (sender, opened) = mpsc::channel();
        *locked(&self.shared.reopen) = Some((options, sender));
        opened.recv().unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into()))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in it was already reported by the panic hook.
            drop(thread.join());
        }
    }
}

/// What a connection has sent so far.
#[derive(Debug, Default)]
struct Hello {
    cookie: Vec<u8>,
    /// From [`State::ParamExchange`] on.
    machine: Option<ServerMachine>,
}

struct AcceptLoop {
    address: SocketAddr,
    listener: Option<Socket>,
    lobby: Lobby<Hello>,
    shared: Arc<Shared>,
    clients: SyncSender<Arrival>,
}

/// What a connection turned out to be.
#[derive(Debug)]
enum Kind {
    Stream,
    Client(Cookie, Box<Parameters>),
}

impl AcceptLoop {
    fn run(mut self) {
        while !self.shared.stop.load(Relaxed) {
            let reopen = locked(&self.shared.reopen).take();
            if let Some((options, opened)) = reopen {
                // The port is free only after the listener was closed.
                self.listener = None;
                let listened = listen(self.address, options).map(|listener| self.listener = Some(listener));
                drop(opened.send(listened));
            }
            self.lobby.wait(self.listener.as_ref(), POLL_INTERVAL);
            let (shared, clients) = (&self.shared, &self.clients);
            let arrived = self.lobby.round(self.listener.as_ref(), |waiting| step(waiting, shared, clients));
            for (waiting, kind) in arrived {
                self.admit(waiting, kind);
            }
        }
    }

    fn admit(&self, Waiting { number, socket, state, .. }: Waiting<Hello>, kind: Kind) {
        let stream = TcpStream::from(socket);
        let mut admission = locked(&self.shared.admission);
        match (&*admission, kind) {
            // When the test or the server has ended meanwhile, dropping it closes it.
            (Admission::Streams(_, streams), Kind::Stream) => {
                drop(streams.send(Connection { number, stream }))
            }
            (Admission::Idle, Kind::Client(cookie, parameters)) => {
                let machine = state.machine.unwrap_or_default();
                let client = Arrival::Client(Client { stream, cookie, parameters, machine });
                // An idle server takes what is reported; should it not, the client is refused.
                match self.clients.try_send(client) {
                    Ok(()) => *admission = Admission::Busy,
                    Err(mpsc::TrySendError::Full(Arrival::Client(client))) => deny(&client.stream),
                    Err(_) => {}
                }
            }
            _ => deny(&stream),
        }
    }
}

/// Reads what a connection has sent: a stream leaves with its cookie, a client with its parameters.
fn step(waiting: &mut Waiting<Hello>, shared: &Shared, clients: &SyncSender<Arrival>) -> Step<Kind> {
    match fill(&waiting.socket, &mut waiting.state.cookie, COOKIE_BYTES) {
        Step::Done(()) => {}
        Step::Wait => return Step::Wait,
        Step::Close => return Step::Close,
    }
    let Ok(cookie) = waiting.state.cookie[..].try_into().map(Cookie::of_peer) else { return Step::Close };
    let is_idle = match &*locked(&shared.admission) {
        Admission::Streams(own, _) if *own == cookie && waiting.state.machine.is_none() => {
            return Step::Done(Kind::Stream);
        }
        Admission::Idle => true,
        Admission::Busy | Admission::Streams(..) => false,
    };
    let may_have = locked(&shared.turns).may_have(waiting.peer.ip(), Instant::now());
    if !is_idle || !may_have {
        deny_socket(&waiting.socket);
        return Step::Close;
    }
    if waiting.state.machine.is_none() {
        // The first byte that is sent fits.
        if (&waiting.socket).write(&[State::ParamExchange.byte()]).is_err() {
            return Step::Close;
        }
        waiting.state.machine = Some(ServerMachine::new());
    }
    match parameters(waiting) {
        Ok(Some(parameters)) => Step::Done(Kind::Client(cookie, parameters)),
        Ok(None) => Step::Wait,
        Err(failed) => {
            // A client that does not read it does not get it.
            drop((&waiting.socket).write(&error_message(code::PARAMETERS)));
            drop(waiting.socket.shutdown(Shutdown::Write));
            drop(clients.try_send(Arrival::Refused(waiting.peer, failed)));
            Step::Close
        }
    }
}

/// The parameters once they are complete.
fn parameters(waiting: &mut Waiting<Hello>) -> Result<Option<Box<Parameters>>, Failure> {
    let peer = waiting.peer.to_string();
    let machine = waiting.state.machine.get_or_insert_default();
    let mut bytes = [0; 4096];
    loop {
        let read = match (&waiting.socket).read(&mut bytes) {
            Ok(0) => {
                let message = format!("{peer} closed the control connection");
                return Err(Failure::new(FailureKind::Connection, message));
            }
            Ok(length) => machine.take(bytes.get(..length).unwrap_or(&bytes)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(error) => {
                let message = format!("{peer}: the control connection failed: {error}");
                return Err(Failure::new(FailureKind::Connection, message));
            }
        };
        // A client sends nothing after its parameters before it was asked to.
        match read.map_err(|error| error.failure(&peer))?.into_iter().next() {
            Some(ServerEvent::Parameters(parameters)) => return Ok(Some(parameters)),
            Some(_) => return Err(ProtocolError::UnexpectedData.failure(&peer)),
            None => {}
        }
    }
}

/// Sends "access denied" to a connection: the server is busy.
fn deny(stream: &TcpStream) {
    deny_socket(&socket2::SockRef::from(stream));
}

fn deny_socket(mut socket: &Socket) {
    // A peer that does not accept a byte does not get it.
    drop(socket.write(&[State::AccessDenied.byte()]));
    drop(socket.shutdown(Shutdown::Write));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::frame;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn listener() -> Listener {
        Listener::open("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    fn connect(listener: &Listener, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(listener.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    fn reply(mut stream: &TcpStream) -> Option<u8> {
        let mut byte = [0];
        matches!(stream.read(&mut byte), Ok(1)).then_some(byte[0])
    }

    fn parameters() -> Vec<u8> {
        frame(&Parameters::default().to_json())
    }

    /// A cookie and valid parameters.
    fn client(listener: &Listener, letter: u8) -> TcpStream {
        connect(listener, &[&[letter; COOKIE_BYTES][..], &parameters()].concat())
    }

    fn next_client(listener: &Listener) -> Client {
        match listener.client(TIMEOUT) {
            Some(Arrival::Client(client)) => client,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_client_is_admitted_and_others_are_refused_as_busy() {
        let listener = listener();
        let silent = TcpStream::connect(listener.address).unwrap();
        let early = connect(&listener, &[b'e'; COOKIE_BYTES]);
        assert_eq!(reply(&early), Some(State::ParamExchange.byte()), "it may send its parameters");
        let first = client(&listener, b'a');
        assert_eq!(next_client(&listener).cookie, Cookie::of_peer([b'a'; COOKIE_BYTES]));
        assert_eq!(reply(&first), Some(State::ParamExchange.byte()));
        // Its parameters come too late.
        assert_eq!(reply(&early), Some(State::AccessDenied.byte()));
        let second = connect(&listener, &[b'b'; COOKIE_BYTES]);
        assert_eq!(reply(&second), Some(State::AccessDenied.byte()));
        listener.admit_client();
        let _third = client(&listener, b'c');
        next_client(&listener);
        drop(silent);
    }

    /// The place is whose parameters are valid; those of who has wasted it come after others'.
    #[test]
    fn a_cookie_alone_does_not_have_the_place_and_who_wasted_it_comes_after_others() {
        let listener = listener();
        let cookies: Vec<TcpStream> = (0..10).map(|_| connect(&listener, &[b'x'; COOKIE_BYTES])).collect();
        let _own = client(&listener, b'a');
        next_client(&listener);
        listener.wasted([127, 0, 0, 1].into(), TIMEOUT);
        listener.admit_client();
        assert_eq!(reply(&client(&listener, b'b')), Some(State::AccessDenied.byte()));
        let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        other.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        other.connect(&listener.address.into()).unwrap();
        (&other).write_all(&[&[b'o'; COOKIE_BYTES][..], &parameters()].concat()).unwrap();
        assert_eq!(next_client(&listener).cookie, Cookie::of_peer([b'o'; COOKIE_BYTES]));
        drop(cookies);
    }

    #[test]
    fn invalid_parameters_are_refused_with_a_reason_and_the_place_stays_free() {
        let listener = listener();
        let bad = connect(&listener, &[&[b'x'; COOKIE_BYTES][..], &[0, 0, 0, 1, b'{']].concat());
        assert!(matches!(listener.client(TIMEOUT), Some(Arrival::Refused(..))));
        assert_eq!(reply(&bad), Some(State::ParamExchange.byte()));
        assert_eq!(reply(&bad), Some(State::ServerError.byte()));
        let _client = client(&listener, b'a');
        next_client(&listener);
    }

    #[test]
    fn streams_need_the_tests_cookie_and_keep_their_order() {
        let listener = listener();
        let cookie = [b'k'; COOKIE_BYTES];
        let streams = listener.admit_streams(Cookie::of_peer(cookie));
        let mut slow = connect(&listener, &cookie[..10]);
        let _quick = connect(&listener, &cookie);
        let stranger = connect(&listener, &[b'x'; COOKIE_BYTES]);
        let quick = streams.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(reply(&stranger), Some(State::AccessDenied.byte()));
        slow.write_all(&cookie[10..]).unwrap();
        let slow = streams.recv_timeout(TIMEOUT).unwrap();
        assert!(slow.number < quick.number, "the order of the connections");
        listener.close_to_streams();
        let late = connect(&listener, &cookie);
        assert_eq!(reply(&late), Some(State::AccessDenied.byte()));
    }

    #[test]
    fn the_listener_is_reopened_with_a_window() {
        let listener = listener();
        listener.reopen(ListenOptions { window_bytes: Some(65_536), mss_bytes: Some(1000) }).unwrap();
        let _client = client(&listener, b'w');
        let client = next_client(&listener);
        let socket = socket2::SockRef::from(&client.stream);
        // socket(7): doubled.
        assert_eq!(socket.recv_buffer_size().unwrap(), 131_072);
        listener.reopen(ListenOptions::default()).unwrap();
    }

    #[test]
    fn more_strangers_than_the_limit_do_not_lock_a_client_out() {
        let listener = listener();
        let crowd: Vec<TcpStream> = (0..PENDING_MAX + 20).map(|_| connect(&listener, b"GET")).collect();
        let _client = client(&listener, b'c');
        next_client(&listener);
        drop(crowd);
    }
}
