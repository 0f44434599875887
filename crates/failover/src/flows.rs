//! Request/response flows through a lab: each sends requests at a fixed
//! interval, over TCP, and records the times of the responses. One thread sends
//! requests, one responds; the sockets are opened in the hosts' namespaces and
//! stay in them.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clearstream_admission::AcceptFault;
use clearstream_sys::namespace::NamespaceSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of a request and of its response.
const MESSAGE_BYTES: usize = 64;
/// Timeout for opening a flow.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval at which the threads poll the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Responds to every request until it is dropped.
#[derive(Debug)]
pub(crate) struct Responder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Listens on an address of each of these hosts; returns the socket
    /// addresses.
    pub(crate) fn open(hosts: &[(NamespaceSet, IpAddr)]) -> io::Result<(Self, Vec<SocketAddr>)> {
        let listen = |(namespaces, address): &(NamespaceSet, IpAddr)| -> io::Result<TcpListener> {
            let listener = namespaces.run(|| TcpListener::bind((*address, 0)))??;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listeners = hosts.iter().map(listen).collect::<io::Result<Vec<TcpListener>>>()?;
        let places = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("gateways-respond".to_owned())
            .spawn(move || respond(&listeners, &stopping))?;
        Ok((Self { stop, thread: Some(thread) }, places))
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic; there is nothing left to
            // clean up.
            let _ = thread.join();
        }
    }
}

fn respond(listeners: &[TcpListener], stop: &AtomicBool) {
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut buffer = [0; 16 * MESSAGE_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let ready = wait(
            listeners.iter().map(PollFd::new_in).chain(streams.iter().map(PollFd::new_in)),
            POLL_INTERVAL,
        );
        let (new, known) = ready.split_at(listeners.len().min(ready.len()));
        let mut gone = Vec::new();
        for (place, ready) in known.iter().enumerate() {
            if *ready && !echo(&mut streams[place], &mut buffer) {
                gone.push(place);
            }
        }
        for place in gone.into_iter().rev() {
            streams.swap_remove(place);
        }
        for (listener, _) in listeners.iter().zip(new).filter(|(_, ready)| **ready) {
            loop {
                let stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        AcceptFault::pause_after(&error);
                        break;
                    }
                };
                // Responses are sent without delay; if setting the option
                // fails, the flow is only slower.
                let _ = stream.set_nodelay(true);
                if stream.set_nonblocking(true).is_ok() {
                    streams.push(stream);
                }
            }
        }
    }
}

/// Echoes received bytes; false when the flow has ended.
fn echo(stream: &mut TcpStream, buffer: &mut [u8]) -> bool {
    match stream.read(buffer) {
        Ok(0) => false,
        // A socket that cannot take 64 bytes has a response queued already, and
        // its peer sends one request at a time.
        Ok(count) => stream.write_all(&buffer[..count]).is_ok(),
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}

trait ForReading<'fd> {
    fn new_in<F: std::os::fd::AsFd>(fd: &'fd F) -> Self;
}

impl<'fd> ForReading<'fd> for PollFd<'fd> {
    fn new_in<F: std::os::fd::AsFd>(fd: &'fd F) -> Self {
        PollFd::new(fd, PollFlags::IN)
    }
}

/// Waits until one is readable; returns which are.
fn wait<'fd>(polled: impl Iterator<Item = PollFd<'fd>>, longest: Duration) -> Vec<bool> {
    let mut polled: Vec<PollFd<'fd>> = polled.collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: longest.subsec_nanos().into() };
    // An interruption is handled like a timeout.
    let _ = poll(&mut polled, Some(&timeout));
    polled.iter().map(|one| !one.revents().is_empty()).collect()
}

/// A flow between two hosts.
#[derive(Debug)]
pub(crate) struct RequestFlow {
    stream: TcpStream,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// Indices of the client and of the server.
    pub(crate) pair: (usize, usize),
    /// Times of responses, nanoseconds from the start.
    pub(crate) responses_ns: Vec<u64>,
    /// Times from request to response.
    pub(crate) round_trips_ns: Vec<u64>,
    next_ns: u64,
    request_ns: Option<u64>,
    received: usize,
    over: bool,
}

/// Opens flows from a host to these servers, like applications: the kernel
/// chooses the port. Those that cannot be opened are omitted.
pub(crate) fn open(
    namespaces: &NamespaceSet,
    client: usize,
    servers: &[(usize, SocketAddr)],
) -> io::Result<Vec<RequestFlow>> {
    let connect = |(server, to): &(usize, SocketAddr)| -> io::Result<RequestFlow> {
        let stream = TcpStream::connect_timeout(to, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let from = stream.local_addr()?;
        Ok(RequestFlow {
            stream,
            from,
            to: *to,
            pair: (client, *server),
            responses_ns: Vec::new(),
            round_trips_ns: Vec::new(),
            next_ns: 0,
            request_ns: None,
            received: 0,
            over: false,
        })
    };
    namespaces.run(|| servers.iter().filter_map(|server| connect(server).ok()).collect())
}

/// Sends a request over every flow once per `interval`, staggered, until
/// `end_ns` after the start of the clock or until stopped. A flow without its
/// response sends the next request when it has arrived.
pub(crate) fn run(
    request_flows: &mut [RequestFlow],
    interval: Duration,
    clock: &Instant,
    end_ns: u64,
    stop: &AtomicBool,
) {
    let interval_ns = nanoseconds(interval).max(1);
    let count = request_flows.len().max(1) as u64;
    for (place, flow) in request_flows.iter_mut().enumerate() {
        flow.next_ns = interval_ns * place as u64 / count;
    }
    loop {
        let now_ns = nanoseconds(clock.elapsed());
        if now_ns >= end_ns || stop.load(Ordering::Relaxed) {
            return;
        }
        let mut next_ns = now_ns + nanoseconds(POLL_INTERVAL);
        for flow in request_flows.iter_mut().filter(|flow| !flow.over && flow.request_ns.is_none()) {
            if flow.next_ns <= now_ns {
                flow.send_request(now_ns, interval_ns);
            } else {
                next_ns = next_ns.min(flow.next_ns);
            }
        }
        // A closed flow would be readable all the time.
        let open: Vec<usize> = (0..request_flows.len()).filter(|place| !request_flows[*place].over).collect();
        let polled = open.iter().map(|place| PollFd::new_in(&request_flows[*place].stream));
        let ready = wait(polled, Duration::from_nanos(next_ns.saturating_sub(now_ns)));
        let now_ns = nanoseconds(clock.elapsed());
        for (place, _) in open.iter().zip(&ready).filter(|(_, ready)| **ready) {
            request_flows[*place].take(now_ns);
        }
    }
}

impl RequestFlow {
    fn send_request(&mut self, now_ns: u64, interval_ns: u64) {
        self.next_ns = (self.next_ns + interval_ns).max(now_ns);
        match self.stream.write(&[0x5a; MESSAGE_BYTES]) {
            Ok(_) => {
                self.request_ns = Some(now_ns);
                self.received = 0;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.over = true,
        }
    }

    fn take(&mut self, now_ns: u64) {
        let mut buffer = [0; MESSAGE_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.over = true,
            Ok(count) => {
                self.received += count;
                if self.received >= MESSAGE_BYTES
                    && let Some(request_ns) = self.request_ns.take()
                {
                    self.responses_ns.push(now_ns);
                    self.round_trips_ns.push(now_ns - request_ns);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // Timed out, reset, unreachable: the application would have to
            // reconnect.
            Err(_) => self.over = true,
        }
    }
}

/// Converts a duration to nanoseconds.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
