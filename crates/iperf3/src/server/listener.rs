//! The listening port: accepts the client of the next test, streams of the running one, and refuses clients
//! while the server is busy. Each has to open with a cookie, and none can block the others.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::wire::{COOKIE_BYTES, Cookie, State};

/// Timeout of a connection's cookie.
const COOKIE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum connections without a cookie; then the oldest is closed.
const PENDING_MAX: usize = 64;
/// Interval at which the thread checks for a new listener or the end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Options inherited by accepted sockets: the window scale is fixed at the handshake.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ListenOptions {
    pub(super) window_bytes: Option<u32>,
    pub(super) mss_bytes: Option<u32>,
}

/// A connection with a complete cookie.
#[derive(Debug)]
pub(super) struct Connection {
    /// Order of arrival.
    pub(super) number: u64,
    pub(super) stream: TcpStream,
    pub(super) cookie: Cookie,
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
}

/// The listening port with its thread.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    clients: Receiver<Connection>,
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
        });
        let (sender, clients) = mpsc::channel();
        let accept_loop = AcceptLoop {
            address,
            listener: Some(listener),
            pending: Vec::new(),
            next: 0,
            shared: Arc::clone(&shared),
            clients: sender,
        };
        let thread =
            thread::Builder::new().name("iperf3-listener".into()).spawn(move || accept_loop.run())?;
        Ok(Self { address, shared, clients, thread: Some(thread) })
    }

    /// Accepts the client of the next test; the server is busy from then on.
    pub(super) fn client(&self, timeout: Duration) -> Option<Connection> {
        self.clients.recv_timeout(timeout).ok()
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

/// A connection whose cookie is incomplete.
#[derive(Debug)]
struct Pending {
    number: u64,
    stream: TcpStream,
    cookie: Vec<u8>,
    until: Instant,
}

struct AcceptLoop {
    address: SocketAddr,
    listener: Option<Socket>,
    pending: Vec<Pending>,
    next: u64,
    shared: Arc<Shared>,
    clients: Sender<Connection>,
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
            self.wait();
            self.accept();
            self.read_pending();
        }
    }

    fn wait(&self) {
        let listener = self.listener.iter().map(|socket| PollFd::new(socket, PollFlags::IN));
        let pending = self.pending.iter().map(|pending| PollFd::new(&pending.stream, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = listener.chain(pending).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
        // An interruption is treated as a timeout.
        let _ = poll(&mut polled, Some(&timeout));
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        // One round accepts at most as many as may be pending, so that a flood does not starve the pending
        // ones.
        for _ in 0..PENDING_MAX {
            let stream: TcpStream = match listener.accept() {
                Ok((socket, _)) => socket.into(),
                // No descriptors are left; there may be some later.
                Err(_) => return,
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.pending.len() >= PENDING_MAX {
                self.pending.remove(0);
            }
            let until = Instant::now() + COOKIE_TIMEOUT;
            self.pending.push(Pending { number: self.next, stream, cookie: Vec::new(), until });
            self.next += 1;
        }
    }

    fn read_pending(&mut self) {
        let now = Instant::now();
        for mut pending in std::mem::take(&mut self.pending) {
            match read(&mut pending) {
                Some(Some(cookie)) => self.admit(pending, cookie),
                Some(None) if now < pending.until => self.pending.push(pending),
                // Timed out or closed.
                Some(None) => deny(&pending.stream),
                None => {}
            }
        }
    }

    fn admit(&self, Pending { number, stream, .. }: Pending, cookie: Cookie) {
        let connection = Connection { number, stream, cookie };
        let mut admission = locked(&self.shared.admission);
        // When the test or the server has ended meanwhile, dropping it closes it.
        if matches!(*admission, Admission::Idle) {
            *admission = Admission::Busy;
            return drop(self.clients.send(connection));
        }
        match &*admission {
            Admission::Streams(own, streams) if *own == cookie => drop(streams.send(connection)),
            _ => deny(&connection.stream),
        }
    }
}

/// The cookie once it is complete; `None` when the connection has ended.
fn read(pending: &mut Pending) -> Option<Option<Cookie>> {
    let mut bytes = [0; COOKIE_BYTES];
    let missing = COOKIE_BYTES - pending.cookie.len();
    match (&pending.stream).read(&mut bytes[..missing]) {
        Ok(0) => None,
        Ok(length) => {
            pending.cookie.extend_from_slice(&bytes[..length]);
            Some(pending.cookie[..].try_into().ok().map(Cookie::of_peer))
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Some(None),
        Err(_) => None,
    }
}

/// Sends "access denied" to a connection: the server is busy.
fn deny(mut stream: &TcpStream) {
    // A peer that does not accept a byte does not get it.
    drop(stream.write(&[State::AccessDenied.byte()]));
    drop(stream.shutdown(Shutdown::Write));
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn one_client_is_admitted_and_others_are_refused_as_busy() {
        let listener = listener();
        let silent = TcpStream::connect(listener.address).unwrap();
        let _first = connect(&listener, &[b'a'; COOKIE_BYTES]);
        let client = listener.client(TIMEOUT).unwrap();
        assert_eq!(client.cookie, Cookie::of_peer([b'a'; COOKIE_BYTES]));
        let second = connect(&listener, &[b'b'; COOKIE_BYTES]);
        assert_eq!(reply(&second), Some(State::AccessDenied.byte()));
        listener.admit_client();
        let _third = connect(&listener, &[b'c'; COOKIE_BYTES]);
        assert!(listener.client(TIMEOUT).is_some());
        drop(silent);
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
        let _client = connect(&listener, &[0; COOKIE_BYTES]);
        let client = listener.client(TIMEOUT).unwrap();
        let socket = socket2::SockRef::from(&client.stream);
        // socket(7): doubled.
        assert_eq!(socket.recv_buffer_size().unwrap(), 131_072);
        listener.reopen(ListenOptions::default()).unwrap();
    }

    #[test]
    fn more_strangers_than_the_limit_do_not_lock_a_client_out() {
        let listener = listener();
        let crowd: Vec<TcpStream> = (0..PENDING_MAX + 20).map(|_| connect(&listener, b"GET")).collect();
        let _client = connect(&listener, &[1; COOKIE_BYTES]);
        assert!(listener.client(TIMEOUT).is_some());
        drop(crowd);
    }
}
