//! Options and result of a connection setup.

use std::{net::SocketAddr, time::Duration};

/// Options for connecting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Private data for the peer's application: up to 512 bytes, 4 of which
    /// revision 2 uses.
    pub private_data: Vec<u8>,
    /// Maximum number of the peer's outstanding Reads and atomics (IRD).
    pub ird: u16,
    /// Maximum number of own outstanding Reads and atomics (ORD).
    pub ord: u16,
    /// Request CRC32C over each FPDU.
    pub crc: bool,
    /// Request markers in the incoming stream.
    pub markers: bool,
    /// MPA revision, 1 or 2; 2 negotiates `ird` and `ord` (RFC 6581).
    pub revision: u8,
    /// Reconnect with revision 1 when the peer closes after a request of
    /// revision 2, or replies with revision 1 (RFC 6581, section 10). `ird` and
    /// `ord` are not negotiated then: both programs must agree on them.
    /// Disabled where revision 2 is needed, for `peer_to_peer`.
    pub fall_back: bool,
    /// Either side may send first, after a ready-to-receive message of the
    /// initiator. Needs revision 2.
    pub peer_to_peer: bool,
    /// Offer FPDUs larger than a TCP segment, used if both sides offer them:
    /// less overhead where segments are small. Signalled in a reserved bit of
    /// the request that Linux' siw defines for it; other peers ignore it.
    pub large_fpdus: bool,
    /// Offer immediate data with Sends and Writes (the default), used if both sides offer it: there is no immediate
    /// data of its own then. Signalled in a reserved bit of the request; other implementations ignore it, and one of
    /// this kind replies that it needs no delay of the first message.
    pub immediate_data: bool,
    /// Local address; `None` leaves it to the kernel.
    pub local: Option<SocketAddr>,
    /// Timeout of the whole setup: TCP, request, reply.
    pub timeout: Duration,
    /// Timeout of TCP's handshake.
    pub tcp_timeout: Duration,
    /// Timeout of the reply once the request is sent: the time that the peer's
    /// program has to accept. A peer whose TCP acknowledges nothing for five
    /// seconds ends the setup sooner.
    pub reply_timeout: Duration,
    /// Delay of the first message after the reply; `None`: 10 ms, and none to
    /// this host's loopback or to a peer whose reply says that it needs none, as
    /// this implementation does to a request that offers large FPDUs or
    /// immediate data. Linux' siw misses data that arrives right after
    /// its reply, while it takes over the socket, until more arrives: a single
    /// first message would be lost.
    pub settle: Option<Duration>,
    /// Options of the socket.
    pub socket: SocketOptions,
}

/// Options of a connection's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Type of service of IPv4, traffic class of IPv6: DSCP and ECN of each
    /// packet. `None` leaves it to the kernel, which copies a listener's.
    pub type_of_service: Option<u8>,
    /// Time for which sent data may stay unacknowledged before the connection
    /// ends (`TCP_USER_TIMEOUT`, tcp(7)); `None` leaves it to the kernel.
    pub user_timeout: Option<Duration>,
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
            immediate_data: true,
            local: None,
            timeout: Duration::from_secs(10),
            tcp_timeout: Duration::from_secs(10),
            reply_timeout: Duration::from_secs(5),
            settle: None,
            socket: SocketOptions::default(),
        }
    }
}

/// Default of [`ConnectOptions::settle`].
const SETTLE: Duration = Duration::from_millis(10);

impl ConnectOptions {
    /// Returns the delay for this peer, unless its reply says that it needs none.
    pub(super) fn settle_delay(&self, peer: SocketAddr, is_ready: bool) -> Duration {
        let needless = is_ready || peer.ip().is_loopback();
        self.settle.unwrap_or(if needless { Duration::ZERO } else { SETTLE })
    }
}

/// Options for accepting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptOptions {
    /// Private data for the peer's application: up to 512 bytes, 4 of which
    /// revision 2 uses.
    pub private_data: Vec<u8>,
    /// Maximum number of the peer's outstanding Reads and atomics (IRD).
    pub ird: u16,
    /// Maximum number of own outstanding Reads and atomics (ORD).
    pub ord: u16,
    /// Request CRC32C also if the peer does not.
    pub crc: bool,
    /// Request markers in the incoming stream.
    pub markers: bool,
    /// Accept FPDUs larger than a TCP segment if the peer offers them.
    pub large_fpdus: bool,
    /// Take immediate data with Sends and Writes if the peer does, which has no immediate data of its own then.
    pub immediate_data: bool,
    /// Send before the peer's first message, which the standard forbids (RFC
    /// 5044, section 7.1.2): for applications in which the responder sends
    /// first and the initiator is known to be ready for it, without a
    /// peer-to-peer setup. perftest's `ib_write_lat` is one.
    pub send_first: bool,
    /// Options of the socket.
    pub socket: SocketOptions,
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
            immediate_data: false,
            send_first: false,
            socket: SocketOptions::default(),
        }
    }
}

/// Parameters of an established connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Established {
    /// Local address.
    pub local: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Private data of the peer's application.
    pub private_data: Vec<u8>,
    /// CRC32C is enabled, in both directions.
    pub crc: bool,
    /// Markers in the outgoing stream.
    pub markers_out: bool,
    /// Markers in the incoming stream.
    pub markers_in: bool,
    /// MPA revision.
    pub revision: u8,
    /// Maximum number of the peer's outstanding Reads and atomics (IRD).
    pub ird: u16,
    /// Maximum number of own outstanding Reads and atomics (ORD).
    pub ord: u16,
    /// The setup is peer-to-peer, with a ready-to-receive message.
    pub peer_to_peer: bool,
    /// This side is the initiator.
    pub initiator: bool,
    /// Both ends take immediate data with Sends and Writes.
    pub immediate_data: bool,
    /// Maximum length of a ULPDU (RFC 5044, section 4.5).
    pub mulpdu_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::Ipv6Addr;

    #[test]
    fn only_a_peer_that_may_miss_it_delays_the_first_message() {
        let far = SocketAddr::from(([192, 0, 2, 1], 1));
        let near = SocketAddr::from((Ipv6Addr::LOCALHOST, 1));
        let chosen = |settle| ConnectOptions { settle, ..ConnectOptions::default() };
        let table = [
            (None, far, false, SETTLE),
            (None, far, true, Duration::ZERO),
            (None, near, false, Duration::ZERO),
            (Some(Duration::from_secs(1)), near, true, Duration::from_secs(1)),
        ];
        for (settle, peer, is_ready, delay) in table {
            assert_eq!(chosen(settle).settle_delay(peer, is_ready), delay);
        }
    }
}
