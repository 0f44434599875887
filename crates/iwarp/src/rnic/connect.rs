//! Connection setup: initiator and responder, and the negotiated parameters.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll, poll},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};
use socket2::Socket;

use crate::{
    ddp,
    mpa::{Framer, Kind, MpaError, Negotiated, Offer, RtrKinds, SetupFrame, conclude, initiate, respond},
    queue_pair::{Machine, State},
    rdmap::{Opcode, Terminate, queue},
    rnic::{
        AcceptOptions, ConnectError, ConnectOptions, Established, Incoming, after,
        device::Attributes,
        link::Link,
        phase::Phase,
        queue_pair::Handle,
        setup::{
            FrameReader, Prepared, answer, await_socket, awaits_reply, chosen, connected, send_all, socket,
            type_of_service,
        },
    },
};

/// A connection setup in progress. Its descriptor is readable when
/// [`Connecting::advance`] can make progress, including timeouts. Dropping it
/// aborts the setup; the queue pair is idle again.
#[derive(Debug)]
pub struct Connecting {
    attempt: Attempt,
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Connecting {
    pub(super) fn new(attempt: Attempt) -> Result<Self, ConnectError> {
        let failed =
            |error: rustix::io::Errno| ConnectError::System { step: "watch a setup", source: error.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(failed)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(failed)?;
        if let Some(socket) = &attempt.socket {
            epoll::add(&epoll, socket, epoll::EventData::new_u64(1), attempt.interest()).map_err(failed)?;
        }
        let connecting = Self { attempt, epoll, timer };
        connecting.set_timer();
        Ok(connecting)
    }

    /// Advances without blocking; returns the connection once it is
    /// established.
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair is idle again.
    pub fn advance(&mut self) -> Result<Option<Established>, ConnectError> {
        let before = (self.attempt.first.is_some(), self.attempt.interest());
        let established = self.attempt.advance()?;
        let now = (self.attempt.first.is_some(), self.attempt.interest());
        if let Some(socket) = &self.attempt.socket
            && now != before
        {
            let data = epoll::EventData::new_u64(1);
            // The second attempt has a new socket; the first one is closed,
            // which removes it from the epoll (epoll(7)).
            let watched = match now.0 == before.0 {
                true => epoll::modify(&self.epoll, socket, data, now.1),
                false => epoll::add(&self.epoll, socket, data, now.1),
            };
            watched.map_err(|error| ConnectError::System { step: "watch a setup", source: error.into() })?;
            self.set_timer();
        }
        Ok(established)
    }

    fn set_timer(&self) {
        let left = self.attempt.end.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        if let Ok(it_value) = Timespec::try_from(left) {
            let once = Itimerspec { it_interval: Timespec::default(), it_value };
            // Setting an existing timer to a valid time cannot fail.
            let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        }
    }
}

impl AsFd for Connecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// A received Reply.
#[derive(Debug)]
struct Replied {
    negotiated: Negotiated,
    private_data: Vec<u8>,
    /// Bytes received after it.
    early: Vec<u8>,
}

/// State machine of the initiator.
#[derive(Debug)]
pub(super) struct Attempt {
    handle: Arc<Handle>,
    /// `None` once it was passed to the connection.
    socket: Option<Socket>,
    peer: SocketAddr,
    offer: Offer,
    request: Vec<u8>,
    options: ConnectOptions,
    /// Error of revision 2, when this is the second attempt.
    first: Option<ConnectError>,
    /// `None` during the TCP handshake, then the reader of the Reply.
    reply: Option<FrameReader>,
    /// Received Reply, during the settle time.
    replied: Option<Replied>,
    began: Instant,
    /// Deadline of the whole setup.
    last: Instant,
    /// Deadline of the current step.
    end: Instant,
}

impl Attempt {
    pub(super) fn start(
        handle: Arc<Handle>,
        peer: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<Self, ConnectError> {
        let kinds = RtrKinds { send: false, write: true, read: true };
        let offer = Offer {
            markers: options.markers,
            crc: options.crc,
            large_fpdus: options.large_fpdus,
            immediate_data: options.immediate_data,
            revision: options.revision,
            ird: options.ird,
            ord: options.ord,
            peer_to_peer: options.peer_to_peer.then_some(kinds),
            private_data: options.private_data.clone(),
        };
        if !(1..=2).contains(&options.revision) {
            return Err(ConnectError::Option(MpaError::Revision { revision: options.revision }));
        }
        if options.peer_to_peer && options.revision < 2 {
            return Err(ConnectError::Option(MpaError::NoMatchingRtr));
        }
        let request = initiate(&offer).encode().map_err(ConnectError::Option)?;
        begin(&handle.link, options.ird.max(options.ord))?;
        let now = Instant::now();
        let mut attempt = Self {
            handle,
            socket: None,
            peer,
            offer,
            request,
            options: options.clone(),
            first: None,
            reply: None,
            replied: None,
            began: now,
            last: after(options.timeout),
            end: after(options.timeout.min(options.tcp_timeout)),
        };
        attempt.connect().map_err(|source| ConnectError::Tcp { step: "connect to", peer, source })?;
        Ok(attempt)
    }

    fn connect(&mut self) -> io::Result<()> {
        let socket = socket(self.peer, &self.handle.link.domain.device.options)?;
        type_of_service(&socket, &self.options.socket)?;
        if let Some(local) = self.options.local {
            // Also a port whose last connection is in TIME_WAIT, which needs it on both sockets (socket(7)).
            socket.set_reuse_address(true)?;
            socket.bind(&local.into())?;
        }
        match socket.connect(&self.peer.into()) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        self.socket = Some(socket);
        Ok(())
    }

    /// Advances until it would block.
    pub(super) fn advance(&mut self) -> Result<Option<Established>, ConnectError> {
        let outcome = self.step();
        match (outcome, self.first.take()) {
            // The host does not accept connections for revision 1: the error of
            // revision 2 is more specific.
            (Err(ConnectError::Tcp { .. }), Some(first)) => self.over(first),
            (Err(error), None) => self.try_revision_1(error),
            (Err(error), _) => self.over(error),
            (outcome, first) => {
                self.first = first;
                outcome
            }
        }
    }

    /// The setup has failed. One that the peer has answered is closed so that it reads what was sent last, a Terminate
    /// perhaps.
    fn over(&mut self, error: ConnectError) -> Result<Option<Established>, ConnectError> {
        if !matches!(error, ConnectError::TimedOut { .. }) {
            self.socket = None;
        }
        Err(error)
    }

    /// Falls back to revision 1 after a peer rejected a Request of revision 2
    /// as one does that supports only revision 1: it closes (RFC 5044, section
    /// 7.1.1, Rev) or replies with its own revision. Then the initiator may use
    /// that (RFC 6581, section 10).
    fn try_revision_1(&mut self, error: ConnectError) -> Result<Option<Established>, ConnectError> {
        let peer = self.peer;
        let other = match &error {
            ConnectError::Closed { .. } => self.reply.as_ref().is_some_and(FrameReader::is_empty),
            ConnectError::Setup { source: MpaError::OtherRevision { reply: 1, .. }, .. } => true,
            _ => false,
        };
        if !other || self.offer.revision < 2 || !self.options.fall_back {
            return self.over(error);
        }
        if self.offer.peer_to_peer.is_some() {
            let closes = matches!(error, ConnectError::Closed { .. });
            return self.over(ConnectError::NeedsRevision2 { peer, closes });
        }
        self.offer.revision = 1;
        self.request = initiate(&self.offer).encode().map_err(ConnectError::Option)?;
        (self.reply, self.end) = (None, self.last.min(after(self.options.tcp_timeout)));
        // Close the old socket first: the local port may be reused.
        self.socket = None;
        match self.connect() {
            Ok(()) => {
                self.first = Some(error);
                Ok(None)
            }
            Err(_) => Err(error),
        }
    }

    fn step(&mut self) -> Result<Option<Established>, ConnectError> {
        let Some(socket) = &self.socket else { return Err(ConnectError::State(self.handle.link.state())) };
        if self.reply.is_none() {
            let mut ready = [PollFd::new(socket, PollFlags::OUT)];
            if poll(&mut ready, Some(&Timespec::default())) != Ok(1) {
                return self.in_time(|attempt| ConnectError::Tcp {
                    step: "connect to",
                    peer: attempt.peer,
                    source: io::ErrorKind::TimedOut.into(),
                });
            }
            self.request()?;
        }
        if self.replied.is_none() {
            let (Some(socket), Some(reply)) = (&self.socket, &mut self.reply) else { return Ok(None) };
            let read = reply.read(socket).map_err(|error| error.of(self.peer, "reply"))?;
            let Some((frame, early)) = read else { return self.in_time(Self::no_reply) };
            let negotiated =
                conclude(&self.offer, &frame).map_err(|error| self.terminate_setup(&frame, error))?;
            self.end = after(self.options.settle_delay(self.peer, frame.ready));
            self.replied = Some(Replied { negotiated, private_data: frame.private_data, early });
        }
        if Instant::now() < self.end {
            return Ok(None);
        }
        self.establish().map(Some)
    }

    fn request(&mut self) -> Result<(), ConnectError> {
        let (peer, step) = (self.peer, "connect to");
        let Some(socket) = &self.socket else { return Ok(()) };
        let sound = match socket.take_error() {
            Ok(Some(error)) | Err(error) => Err(error),
            Ok(None) => {
                connected(socket, &self.handle.link.domain.device.options).and_then(|()| awaits_reply(socket))
            }
        };
        sound.map_err(|source| ConnectError::Tcp { step, peer, source })?;
        send_all(socket, &self.request).map_err(|error| error.of(peer, "reply"))?;
        self.reply = Some(FrameReader::new(Kind::Reply));
        self.began = Instant::now();
        self.end = self.last.min(after(self.options.reply_timeout));
        Ok(())
    }

    fn establish(&mut self) -> Result<Established, ConnectError> {
        let (Some(socket), Some(replied)) = (self.socket.take(), self.replied.take()) else {
            return Err(ConnectError::State(State::Error));
        };
        let (peer, step) = (self.peer, "connect to");
        connected(&socket, &self.handle.link.domain.device.options)
            .and_then(|()| chosen(&socket, &self.options.socket))
            .map_err(|source| ConnectError::Tcp { step, peer, source })?;
        let Replied { negotiated, private_data, early } = replied;
        let prepared = Prepared { socket, negotiated, private_data, peer: self.peer };
        establish(&self.handle.link, prepared, &early, None)
    }

    /// Reports an unacceptable Reply to the responder, which considers the
    /// connection established: a Terminate carries the error (RFC 6581,
    /// sections 4.3 and 4.4).
    fn terminate_setup(&self, reply: &SetupFrame, error: MpaError) -> ConnectError {
        let peer = self.peer;
        let report = matches!(error, MpaError::InsufficientIrd { .. } | MpaError::NoMatchingRtr);
        if let (true, Some(socket)) = (report, &self.socket) {
            let negotiated = Negotiated {
                crc: self.offer.crc || reply.crc,
                markers_out: reply.markers,
                markers_in: self.offer.markers,
                large_fpdus: false,
                immediate_data: false,
                revision: reply.revision,
                ird: 0,
                ord: 0,
                rtr: None,
                initiator: true,
            };
            // Best effort: the connection is closed next.
            let _ = send_all(socket, &terminate(&negotiated, &Terminate::alone(error.code())));
        }
        match error {
            MpaError::Rejected { private_data } => ConnectError::Rejected { peer, private_data },
            source => ConnectError::Setup { peer, source },
        }
    }

    /// Waits until the connection is established.
    pub(super) fn wait(mut self) -> Result<Established, ConnectError> {
        loop {
            if let Some(established) = self.advance()? {
                return Ok(established);
            }
            if self.replied.is_some() {
                std::thread::sleep(self.end.saturating_duration_since(Instant::now()));
            } else if let Some(socket) = &self.socket {
                await_socket(socket.as_fd(), self.reply.is_none(), self.end);
            }
        }
    }

    fn in_time(&self, late: impl FnOnce(&Self) -> ConnectError) -> Result<Option<Established>, ConnectError> {
        if Instant::now() < self.end { Ok(None) } else { Err(late(self)) }
    }

    fn no_reply(&self) -> ConnectError {
        ConnectError::TimedOut { peer: self.peer, awaited: "reply", after: self.began.elapsed() }
    }

    fn interest(&self) -> epoll::EventFlags {
        match (&self.reply, &self.replied) {
            (None, _) => epoll::EventFlags::OUT,
            (Some(_), None) => epoll::EventFlags::IN,
            // Timer only.
            (Some(_), Some(_)) => epoll::EventFlags::empty(),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Given up: a peer that keeps the request, and its socket, must not keep the local port from the next attempt
        // (FIN-WAIT-2). One that has replied closes when it reads the end.
        if let (Some(socket), None) = (&self.socket, &self.replied) {
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
        self.handle.link.advance_phase(Phase::Connecting, Phase::New);
    }
}

/// Accepts a connection request as responder.
pub(super) fn accept(
    link: &Arc<Link>,
    incoming: Incoming,
    options: &AcceptOptions,
) -> Result<Established, ConnectError> {
    begin(link, options.ird.max(options.ord))?;
    let outcome = reply(link, incoming, options);
    if outcome.is_err() {
        link.advance_phase(Phase::Connecting, Phase::New);
    }
    outcome
}

fn reply(link: &Arc<Link>, incoming: Incoming, options: &AcceptOptions) -> Result<Established, ConnectError> {
    let peer = incoming.peer;
    let offer = Offer {
        markers: options.markers,
        crc: options.crc,
        large_fpdus: options.large_fpdus,
        immediate_data: options.immediate_data,
        revision: 2,
        ird: options.ird,
        ord: options.ord,
        peer_to_peer: Some(RtrKinds::ALL),
        private_data: options.private_data.clone(),
    };
    let (socket, request) = incoming.into_parts();
    chosen(&socket, &options.socket).map_err(|source| ConnectError::Tcp { step: "accept", peer, source })?;
    let (reply, negotiated) = respond(&offer, &request).map_err(|(reply, source)| {
        if let Some(bytes) = reply.and_then(|reply| reply.encode().ok()) {
            // Best effort: the connection is closed next.
            let _ = send_all(&socket, &bytes);
        }
        ConnectError::Setup { peer, source }
    })?;
    let bytes = reply.encode().map_err(ConnectError::Option)?;
    answer(&socket, &bytes).map_err(|error| error.of(peer, "first message"))?;
    let deadline = negotiated.rtr.map(|_| after(link.domain.device.options.request_timeout));
    let established = establish(
        link,
        Prepared { socket, negotiated, private_data: request.private_data, peer },
        &[],
        deadline,
    )?;
    if options.send_first && negotiated.rtr.is_none() {
        link.with_machine(Machine::send_first);
    }
    Ok(established)
}

fn establish(
    link: &Arc<Link>,
    prepared: Prepared,
    early: &[u8],
    deadline: Option<Instant>,
) -> Result<Established, ConnectError> {
    let peer = prepared.peer;
    let (machine, established) = prepared.machine(link).map_err(|source| ConnectError::Tcp {
        step: "query the socket of",
        peer,
        source,
    })?;
    // Only one setup of a queue pair reaches this point.
    let established = link.established.get_or_init(|| established).clone();
    link.establish(machine, prepared.socket, early, deadline);
    Ok(established)
}

fn begin(link: &Link, reads: u16) -> Result<(), ConnectError> {
    let max = Attributes::NOW.max_reads;
    if reads > max {
        return Err(ConnectError::Reads { requested: reads, max });
    }
    if link.advance_phase(Phase::New, Phase::Connecting) {
        Ok(())
    } else {
        Err(ConnectError::State(link.state()))
    }
}

/// Encodes a Terminate as the first FPDU of the stream.
fn terminate(negotiated: &Negotiated, terminate: &Terminate) -> Vec<u8> {
    let header = ddp::Header::Untagged {
        last: true,
        queue: queue::TERMINATE,
        msn: 1,
        offset: 0,
        ulp: Opcode::Terminate.control(),
        ulp_reserved: 0,
    };
    let (header, length) = header.encode();
    let body = terminate.encode();
    let mut bytes = Vec::new();
    let mut framer = Framer::new(negotiated);
    framer.begin(u16::try_from(length + body.len()).unwrap_or(u16::MAX), &mut bytes);
    framer.bytes(&header[..length], &mut bytes);
    framer.bytes(&body, &mut bytes);
    framer.finish(&mut bytes);
    bytes
}
