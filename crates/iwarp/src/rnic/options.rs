//! What a set-up is asked for, and what both sides agreed on.

use std::{net::SocketAddr, time::Duration};

/// How to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// For the peer's program: up to 512 bytes, 4 of which revision 2 needs.
    pub private_data: Vec<u8>,
    /// Reads and atomics that the peer may have outstanding here.
    pub ird: u16,
    /// Reads and atomics that may be outstanding towards the peer.
    pub ord: u16,
    /// Ask for CRC32C over each FPDU.
    pub crc: bool,
    /// Ask the peer to put markers into what it sends.
    pub markers: bool,
    /// MPA revision, 1 or 2; 2 negotiates `ird` and `ord` (RFC 6581).
    pub revision: u8,
    /// Connect again with revision 1 when the peer closes upon a request of
    /// revision 2, or replies with revision 1 (RFC 6581, section 10). `ird` and
    /// `ord` are not negotiated then: both programs must know them. Not done
    /// where revision 2 is needed, for `peer_to_peer`.
    pub fall_back: bool,
    /// Either side may send first: a ready-to-receive message opens the
    /// connection. Needs revision 2.
    pub peer_to_peer: bool,
    /// Tell the peer that FPDUs may be larger than a TCP segment. Both sides
    /// send such FPDUs if it says the same: less work where segments are small.
    /// Told in a reserved bit of the request that Linux' siw has for it; other
    /// peers do not look at it.
    pub large_fpdus: bool,
    /// From where; `None` leaves it to the kernel.
    pub local: Option<SocketAddr>,
    /// For all of it: TCP, request, reply.
    pub timeout: Duration,
    /// For the reply once the request is sent.
    pub reply_timeout: Duration,
    /// How long after the reply the first message may leave; `None`: 10 ms, and
    /// at once to this host's loopback. Linux' siw does not look at what comes
    /// while it takes over the socket, right after its reply, before more
    /// comes: a first message that nothing follows would be lost on it.
    pub settle: Option<Duration>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            ird: 16,
            ord: 16,
            crc: true,
            markers: false,
            revision: 2,
            fall_back: true,
            peer_to_peer: false,
            large_fpdus: false,
            local: None,
            timeout: Duration::from_secs(10),
            reply_timeout: Duration::from_secs(5),
            settle: None,
        }
    }
}

/// See [`ConnectOptions::settle`].
const SETTLE: Duration = Duration::from_millis(10);

impl ConnectOptions {
    /// How long this peer is given.
    pub(super) fn settle_towards(&self, peer: SocketAddr) -> Duration {
        self.settle.unwrap_or(if peer.ip().is_loopback() { Duration::ZERO } else { SETTLE })
    }
}

/// How to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptOptions {
    /// For the peer's program: up to 512 bytes, 4 of which revision 2 needs.
    pub private_data: Vec<u8>,
    /// Reads and atomics that the peer may have outstanding here, at most.
    pub ird: u16,
    /// Reads and atomics that may be outstanding towards the peer, at most.
    pub ord: u16,
    /// Want CRC32C also if the peer does not.
    pub crc: bool,
    /// Ask the peer to put markers into what it sends.
    pub markers: bool,
    /// Agree to FPDUs larger than a TCP segment if the peer asks for them.
    pub large_fpdus: bool,
    /// Send before the peer's first message, which the standard forbids (RFC
    /// 5044, section 7.1.2): for exchanges of the consumer's in which the
    /// responder begins and the initiator is known to be ready for it, without
    /// a peer-to-peer set-up. perftest's `ib_write_lat` is one.
    pub speak_first: bool,
}

impl Default for AcceptOptions {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            ird: 16,
            ord: 16,
            crc: false,
            markers: false,
            large_fpdus: true,
            speak_first: false,
        }
    }
}

/// What both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Established {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// What the peer's program had to say.
    pub private_data: Vec<u8>,
    /// CRC32C is on, both ways.
    pub crc: bool,
    /// Markers in what is sent.
    pub markers_out: bool,
    /// Markers in what is received.
    pub markers_in: bool,
    /// MPA revision.
    pub revision: u8,
    /// Reads and atomics that the peer may have outstanding here.
    pub ird: u16,
    /// Reads and atomics that may be outstanding towards the peer.
    pub ord: u16,
    /// A ready-to-receive message opens the connection.
    pub peer_to_peer: bool,
    /// This side connected.
    pub initiator: bool,
    /// Bytes of an FPDU's upper-layer data unit, at most (RFC 5044, section
    /// 4.5).
    pub mulpdu_bytes: usize,
}
