//! The responder: one UDP socket, one TCP listener, one thread.
//!
//! Probes without the cookie get no reply and no error; connections that do not present it in their first
//! bytes are closed. The state of each peer is bounded: a few connections, one message in each direction per
//! connection.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd, OwnedFd},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clearstream_admission::{Accepting, Limits, Proof, Strangers};
use clearstream_schema::control::{Cookie, Failure, FailureKind};
use clearstream_sys::timestamp::{self, Family};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::{
    connection::{COOKIE_TIMEOUT, Connection},
    wire::{Header, Kind, LARGEST_BYTES, Secret},
};

/// Maximum connections with the cookie. One test needs one; a second controller that has it may be starting while
/// the first is closing.
const KNOWN_MAX: usize = 8;
/// Maximum connections without.
const STRANGERS_MAX: usize = 16;
/// Interval at which connections are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Datagrams handled before other sockets are polled.
const BURST: usize = 64;

/// Replies to probes until dropped.
#[derive(Debug)]
pub struct Responder {
    udp: SocketAddr,
    tcp: SocketAddr,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Opens both sockets, on loopback when no address is given: nothing listens beyond it unless requested.
    /// Both use this port, or any free port when it is absent.
    ///
    /// # Errors
    /// `Invalid` for a malformed cookie, port 0 or an address that is not this host's, `InUse` for a port in
    /// use, `Unsupported` for one that this process may not bind, `Internal` for any other error of the
    /// kernel.
    pub fn open(address: Option<IpAddr>, port: Option<u16>, cookie: &Cookie) -> Result<Self, Failure> {
        let secret = crate::secret(cookie)?;
        let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if port == Some(0) {
            let message = "port 0 is no port to listen on: write 1 to 65535".to_owned();
            return Err(Failure { kind: FailureKind::Invalid, message });
        }
        let fail = |step: &str, error: io::Error| open_failure(address, port, step, &error);
        let at = (address, port.unwrap_or(0));
        let udp = UdpSocket::bind(at).map_err(|error| fail("bind UDP", error))?;
        let tcp = TcpListener::bind(at).map_err(|error| fail("bind TCP", error))?;
        udp.set_nonblocking(true).map_err(|error| fail("set up UDP", error))?;
        tcp.set_nonblocking(true).map_err(|error| fail("set up TCP", error))?;
        let udp_address = udp.local_addr().map_err(|error| fail("name UDP", error))?;
        let tcp_address = tcp.local_addr().map_err(|error| fail("name TCP", error))?;
        let family = Family::of(udp_address);
        timestamp::report_time_to_live(&udp, family).map_err(|error| fail("request hop counts", error))?;
        // Without timestamps the turnaround starts at the wake-up of the program, so the prober counts the
        // latency as path delay; the reported clock shows it, and the probe works.
        let _ = timestamp::enable(&udp, false);
        // Size replies must not be lost to the path MTU of the reverse path.
        timestamp::set_path_mtu(&udp, family, timestamp::PathMtu::Fragment)
            .map_err(|error| fail("allow fragments", error))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| fail("create a stop event", error.into()))?;
        let watched = stop.try_clone().map_err(|error| fail("create a stop event", error))?;
        let strangers = Strangers::new(Limits::of_service(STRANGERS_MAX, KNOWN_MAX, COOKIE_TIMEOUT));
        let state =
            State { secret, udp, tcp, prober: None, seen: 0, strangers, connections: Vec::new(), next: 0 };
        let thread = std::thread::Builder::new()
            .name("probe-responder".to_owned())
            .spawn(move || state.serve(&watched))
            .map_err(|error| fail("start a thread", error))?;
        Ok(Self { udp: udp_address, tcp: tcp_address, stop, thread: Some(thread) })
    }

    /// UDP address of the responder.
    pub fn udp(&self) -> SocketAddr {
        self.udp
    }

    /// TCP address of the responder.
    pub fn tcp(&self) -> SocketAddr {
        self.tcp
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // A counter of 1 cannot overflow, so the write cannot fail.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open_failure(address: IpAddr, port: Option<u16>, step: &str, error: &io::Error) -> Failure {
    let at = port.map_or_else(|| address.to_string(), |port| SocketAddr::new(address, port).to_string());
    let (kind, advice) = match error.kind() {
        io::ErrorKind::AddrNotAvailable => (FailureKind::Invalid, "; specify an address of this host"),
        io::ErrorKind::AddrInUse => (FailureKind::InUse, "; specify another --port, or none"),
        io::ErrorKind::PermissionDenied => {
            (FailureKind::Unsupported, "; ports below 1024 need CAP_NET_BIND_SERVICE")
        }
        _ => return Failure::of_system(&format!("listen for probes on {at}: {step}"), error),
    };
    Failure { kind, message: format!("cannot listen for probes on {at}: {step}: {error}{advice}") }
}

struct State {
    secret: Secret,
    udp: UdpSocket,
    tcp: TcpListener,
    /// Source of the delay probes counted in `seen`.
    prober: Option<SocketAddr>,
    seen: u32,
    strangers: Strangers,
    connections: Vec<(u64, Connection)>,
    next: u64,
}

impl State {
    fn serve(mut self, stop: &OwnedFd) {
        let mut buffer = vec![0u8; LARGEST_BYTES + 1];
        loop {
            let accepting = self.strangers.is_accepting(Instant::now());
            let ready = {
                // While nothing can be accepted the listener stays readable.
                let listening = if accepting { PollFlags::IN } else { PollFlags::empty() };
                let mut watched = vec![
                    PollFd::new(stop, PollFlags::IN),
                    PollFd::new(&self.udp, PollFlags::IN),
                    PollFd::new(&self.tcp, listening),
                ];
                watched.extend(self.connections.iter().map(|(_, connection)| {
                    PollFd::from_borrowed_fd(connection.stream().as_fd(), connection.interest())
                }));
                // Without connections there is nothing to check.
                let housekeeping = Timespec { tv_sec: 0, tv_nsec: i64::from(CHECK_INTERVAL.subsec_nanos()) };
                let limit = (!self.connections.is_empty() || !accepting).then_some(&housekeeping);
                match poll(&mut watched, limit) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return,
                }
                watched.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>()
            };
            if ready[0] {
                return;
            }
            if ready[1] {
                self.reply_to_datagrams(&mut buffer);
            }
            let now = Instant::now();
            let mut turn = ready[3..].iter();
            let Self { secret, strangers, connections, .. } = &mut self;
            connections.retain_mut(|(number, connection)| {
                let ready = turn.next().copied().unwrap_or(false);
                let stays = (!ready || connection.advance(secret, &mut buffer).is_ok())
                    && !connection.overdue(now)
                    && (!connection.identified() || strangers.prove(*number) == Proof::Known);
                if !stays {
                    strangers.leave(*number);
                }
                stays
            });
            if ready[2] {
                self.accept(now, &mut buffer);
            }
        }
    }

    fn accept(&mut self, now: Instant, buffer: &mut [u8]) {
        for _ in 0..STRANGERS_MAX {
            match self.tcp.accept() {
                Ok((stream, peer)) => {
                    if prepare(&stream).is_err() {
                        continue;
                    }
                    // Who has the cookie shows it before anybody is displaced.
                    let mut connection = Connection::new(stream, now);
                    if connection.advance(&self.secret, buffer).is_err() {
                        continue;
                    }
                    self.next += 1;
                    if let Some(displaced) = self.strangers.enter(self.next, peer.ip(), now) {
                        self.close(displaced);
                    }
                    self.connections.push((self.next, connection));
                }
                Err(error) => match self.strangers.refused(&error, now) {
                    Accepting::Again => {}
                    Accepting::Close(number) => self.close(number),
                    Accepting::Later | Accepting::Pause => return,
                },
            }
        }
    }

    fn close(&mut self, number: u64) {
        self.connections.retain(|(other, _)| *other != number);
    }

    fn reply_to_datagrams(&mut self, buffer: &mut [u8]) {
        for _ in 0..BURST {
            let received = match timestamp::receive(&self.udp, buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An ICMP error of an earlier reply; the socket continues.
                Err(_) => continue,
            };
            let arrived_ns = received.stamp_ns.unwrap_or_else(timestamp::now_ns);
            let Some(from) = received.from else { continue };
            let Some(probe) = Header::read(&self.secret, &buffer[..received.length]) else { continue };
            // A reply is never answered: two responders cannot be made to loop.
            if probe.is_reply || probe.size as usize != received.length {
                continue;
            }
            if self.prober != Some(from) {
                self.prober = Some(from);
                self.seen = 0;
            }
            if probe.kind == Kind::Delay {
                self.seen = self.seen.saturating_add(1);
            }
            let length = probe.reply_size().min(received.length);
            let reply = Header {
                is_reply: true,
                arrived_time_to_live: received.time_to_live.unwrap_or(0),
                seen: self.seen,
                turnaround_ns: timestamp::now_ns().saturating_sub(arrived_ns),
                ..probe
            };
            reply.write(&self.secret, buffer);
            // A full send buffer or a vanished prober is a lost reply, which the prober counts.
            let _ = self.udp.send_to(&buffer[..length], from);
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let _ = timestamp::enable(stream, false);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::wire::HEADER_BYTES;

    const COOKIE: &str = "00112233445566778899aabbccddeeff";

    fn cookie() -> Cookie {
        Cookie(COOKIE.to_owned())
    }

    fn message(kind: Kind, size: usize) -> Vec<u8> {
        let mut bytes = vec![0xaa; size];
        Header::probe(kind, 9, 255, u32::try_from(size).unwrap())
            .write(&crate::secret(&cookie()).unwrap(), &mut bytes);
        bytes
    }

    fn client(responder: &Responder) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(responder.udp()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    }

    #[test]
    fn only_probes_with_the_cookie_get_replies_and_never_larger_ones() {
        let responder = Responder::open(None, None, &cookie()).unwrap();
        let socket = client(&responder);
        let mut wrong = message(Kind::Delay, 64);
        wrong[10] ^= 1;
        let mut reflected = message(Kind::Delay, 64);
        reflected[5] |= 0x80;
        let mut lying = message(Kind::Delay, 64);
        lying[42..44].copy_from_slice(&1400u16.to_be_bytes());
        for stranger in [b"hello".to_vec(), Vec::new(), wrong, reflected, lying, vec![0; 1400]] {
            socket.send(&stranger).unwrap();
        }
        // Replies arrive in order, so the first one received belongs to this:
        socket.send(&message(Kind::Size, 1400)).unwrap();
        let mut buffer = [0u8; 2000];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(length, HEADER_BYTES, "a size probe is replied to with a header");
        let reply = Header::read(&crate::secret(&cookie()).unwrap(), &buffer).unwrap();
        assert_eq!((reply.kind, reply.is_reply, reply.sequence), (Kind::Size, true, 9));
        assert_eq!(reply.arrived_time_to_live, 64);
        assert_eq!(reply.seen, 0, "only delay probes are counted");
        socket.send(&message(Kind::Delay, 100)).unwrap();
        assert_eq!(socket.recv(&mut buffer).unwrap(), 100, "a delay probe with as many bytes");
        assert_eq!(Header::read(&crate::secret(&cookie()).unwrap(), &buffer).unwrap().seen, 1);
    }

    #[test]
    fn a_tcp_stranger_is_closed_and_does_not_disturb_the_test() {
        let responder = Responder::open(None, None, &cookie()).unwrap();
        let mut good = TcpStream::connect(responder.tcp()).unwrap();
        good.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut stranger = TcpStream::connect(responder.tcp()).unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stranger.write_all(&[b'G'; HEADER_BYTES]).unwrap();
        let mut buffer = [0u8; 200];
        // A close with unread bytes is a reset: both count as closed.
        assert!(matches!(stranger.read(&mut buffer), Ok(0) | Err(_)));
        // A slow one: the message in two parts.
        let bytes = message(Kind::Delay, 100);
        good.write_all(&bytes[..50]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        good.write_all(&bytes[50..]).unwrap();
        good.read_exact(&mut buffer[..100]).unwrap();
        assert!(Header::read(&crate::secret(&cookie()).unwrap(), &buffer).unwrap().is_reply);
    }

    #[test]
    fn idle_connections_are_closed_and_the_number_is_bounded() {
        let responder = Responder::open(None, None, &cookie()).unwrap();
        let mut silent: Vec<_> =
            (0..2 * STRANGERS_MAX).map(|_| TcpStream::connect(responder.tcp()).unwrap()).collect();
        let mut own = TcpStream::connect(responder.tcp()).unwrap();
        own.write_all(&message(Kind::Delay, 64)).unwrap();
        own.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        own.read_exact(&mut [0; 64]).unwrap();
        for stream in &mut silent {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)), "closed by the responder");
        }
        let mut late = TcpStream::connect(responder.tcp()).unwrap();
        late.write_all(&message(Kind::Delay, 64)).unwrap();
        late.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        late.read_exact(&mut [0; 64]).unwrap();
    }

    #[test]
    fn closes_on_drop() {
        let responder = Responder::open(Some("::1".parse().unwrap()), None, &cookie()).unwrap();
        let tcp = responder.tcp();
        drop(responder);
        assert_eq!(TcpStream::connect(tcp).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn errors_name_the_mistake() {
        let failure = Responder::open(None, None, &Cookie("short".to_owned())).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Invalid);
        // TEST-NET-1, RFC 5737: not assigned.
        let failure = Responder::open(Some("192.0.2.1".parse().unwrap()), None, &cookie()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Invalid);
        assert!(failure.message.contains("192.0.2.1"), "{failure}");
    }

    #[test]
    fn both_sockets_use_the_given_port_and_a_port_in_use_is_named() {
        // The port of one protocol may be used by another program for the other one.
        let found = (0..50).find_map(|_| {
            let port = Responder::open(None, None, &cookie()).unwrap().udp().port();
            Responder::open(None, Some(port), &cookie()).ok()
        });
        let first = found.unwrap();
        let port = first.udp().port();
        assert_eq!(first.tcp().port(), port);
        let failure = Responder::open(None, Some(port), &cookie()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::InUse);
        assert!(failure.message.contains(&format!("127.0.0.1:{port}")), "{failure}");
        let failure = Responder::open(None, Some(0), &cookie()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Invalid);
    }
}
