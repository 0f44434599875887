//! Wire format of the control connection: one byte per state, the cookie that opens every connection, and
//! JSON after its length in four bytes, big endian; and the handshake datagrams of a UDP stream.
//!
//! Source: iperf3's public documentation and captures of its programs; the tests of
//! the command run against these programs.

use std::fmt;

/// Port of the control connection and of the streams, by default.
pub const PORT: u16 = 5201;
/// Bytes of a cookie: 36 characters and a zero.
pub const COOKIE_BYTES: usize = 37;

/// First datagram of a UDP client.
pub const UDP_HELLO: [u8; 4] = *b"9876";
/// Reply of the server.
pub const UDP_REPLY: [u8; 4] = *b"6789";
/// Before version 3.10 both were a 32-bit number in the sender's byte order.
const UDP_HELLO_BEFORE: u32 = 123_456_789;
const UDP_REPLY_BEFORE: u32 = 987_654_321;

fn is_either(bytes: &[u8], now: [u8; 4], before: u32) -> bool {
    bytes == now || bytes == before.to_le_bytes() || bytes == before.to_be_bytes()
}

/// Whether a datagram is the first one of a client, of any version.
pub fn is_udp_hello(datagram: &[u8]) -> bool {
    is_either(datagram, UDP_HELLO, UDP_HELLO_BEFORE)
}

/// Whether a datagram is a server's reply, of any version.
pub fn is_udp_reply(datagram: &[u8]) -> bool {
    is_either(datagram, UDP_REPLY, UDP_REPLY_BEFORE)
}

/// A state, which is also its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum State {
    /// Server: everything is connected.
    TestStart = 1,
    /// Server: data flows from now on.
    TestRunning = 2,
    /// Client: the test time, or the amount of data, is over.
    TestEnd = 4,
    /// Server: send the parameters.
    ParamExchange = 9,
    /// Server: connect the streams.
    CreateStreams = 10,
    /// Server: stopped by its operator.
    ServerTerminate = 11,
    /// Client: stopped by its operator.
    ClientTerminate = 12,
    /// Server: send the results; the server's own follow.
    ExchangeResults = 13,
    /// Server: the exchange is complete.
    DisplayResults = 14,
    /// Never sent; initial state of a server.
    IperfStart = 15,
    /// Client: the end.
    IperfDone = 16,
    /// Server: it is busy with another test.
    AccessDenied = -1,
    /// Server: an error; its number and an errno follow.
    ServerError = -2,
}

impl State {
    const ALL: [Self; 13] = [
        Self::TestStart,
        Self::TestRunning,
        Self::TestEnd,
        Self::ParamExchange,
        Self::CreateStreams,
        Self::ServerTerminate,
        Self::ClientTerminate,
        Self::ExchangeResults,
        Self::DisplayResults,
        Self::IperfStart,
        Self::IperfDone,
        Self::AccessDenied,
        Self::ServerError,
    ];

    /// Decodes a state.
    pub fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.byte() == byte)
    }

    /// Encodes the state.
    pub fn byte(self) -> u8 {
        (self as i8).cast_unsigned()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::TestStart => "TEST_START",
            Self::TestRunning => "TEST_RUNNING",
            Self::TestEnd => "TEST_END",
            Self::ParamExchange => "PARAM_EXCHANGE",
            Self::CreateStreams => "CREATE_STREAMS",
            Self::ServerTerminate => "SERVER_TERMINATE",
            Self::ClientTerminate => "CLIENT_TERMINATE",
            Self::ExchangeResults => "EXCHANGE_RESULTS",
            Self::DisplayResults => "DISPLAY_RESULTS",
            Self::IperfStart => "IPERF_START",
            Self::IperfDone => "IPERF_DONE",
            Self::AccessDenied => "ACCESS_DENIED",
            Self::ServerError => "SERVER_ERROR",
        };
        f.write_str(name)
    }
}

/// Identifier of a test, with which every connection of it opens.
#[derive(Clone, Copy)]
pub struct Cookie([u8; COOKIE_BYTES]);

impl Cookie {
    /// Creates a cookie from 36 random bytes: letters and digits of base 32, and the zero.
    pub fn of_random(random: [u8; COOKIE_BYTES - 1]) -> Self {
        const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut bytes = [0; COOKIE_BYTES];
        for (character, random) in bytes.iter_mut().zip(random) {
            *character = ALPHABET.get(usize::from(random % 32)).copied().unwrap_or_default();
        }
        Self(bytes)
    }

    /// A cookie received from a peer.
    pub fn of_peer(bytes: [u8; COOKIE_BYTES]) -> Self {
        Self(bytes)
    }

    /// Encoded cookie.
    pub fn bytes(&self) -> &[u8; COOKIE_BYTES] {
        &self.0
    }
}

impl PartialEq for Cookie {
    /// Constant-time comparison.
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }
}

impl Eq for Cookie {}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie")
    }
}

/// Encodes JSON with its length prefix.
pub fn frame(json: &serde_json::Value) -> Vec<u8> {
    let text = json.to_string();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

/// Incremental decoder of a frame.
#[derive(Debug)]
pub(crate) struct FrameReader {
    limit: u32,
    length: Vec<u8>,
    body: Vec<u8>,
}

/// A frame above the reader's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong(pub(crate) u32);

impl FrameReader {
    /// A reader for a frame of at most `limit` bytes.
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, length: Vec::with_capacity(4), body: Vec::new() }
    }

    /// Consumes the missing bytes from the front of `bytes`. Returns the body once it is complete; memory
    /// grows with the received data, not with the announced length.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, TooLong> {
        fn fill(into: &mut Vec<u8>, wanted: usize, bytes: &mut &[u8]) -> bool {
            let (taken, rest) = bytes.split_at((wanted - into.len()).min(bytes.len()));
            into.extend_from_slice(taken);
            *bytes = rest;
            into.len() == wanted
        }
        if !fill(&mut self.length, 4, bytes) {
            return Ok(None);
        }
        let length = self.length.first_chunk().copied().map_or(0, u32::from_be_bytes);
        if length > self.limit {
            return Err(TooLong(length));
        }
        let whole = fill(&mut self.body, length as usize, bytes);
        Ok(whole.then(|| std::mem::take(&mut self.body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_numbers_of_the_protocol() {
        let numbers: Vec<i8> = State::ALL.iter().map(|state| *state as i8).collect();
        assert_eq!(numbers, [1, 2, 4, 9, 10, 11, 12, 13, 14, 15, 16, -1, -2]);
        for state in State::ALL {
            assert_eq!(State::of(state.byte()), Some(state));
        }
        assert_eq!((State::of(255), State::of(0)), (Some(State::AccessDenied), None));
    }

    #[test]
    fn a_cookie_is_printable_and_ends_with_a_zero() {
        let mut random = [0; 36];
        random.iter_mut().zip(0u8..).for_each(|(byte, n)| *byte = n.wrapping_mul(37));
        let cookie = Cookie::of_random(random);
        let (zero, text) = cookie.bytes().split_last().unwrap();
        assert_eq!(*zero, 0);
        assert!(text.iter().all(|c| c.is_ascii_lowercase() || (b'2'..=b'7').contains(c)));
        assert_eq!(cookie, Cookie::of_peer(*cookie.bytes()));
        let mut other = *cookie.bytes();
        other[35] ^= 1;
        assert_ne!(cookie, Cookie::of_peer(other));
    }

    #[test]
    fn hellos_and_replies_of_old_and_new_versions_are_known() {
        // 0x36373839 and 0x39383736 in memory of a little-endian machine.
        assert!(is_udp_hello(&0x3637_3839_u32.to_le_bytes()) && is_udp_reply(&0x3938_3736_u32.to_le_bytes()));
        for old in [123_456_789_u32.to_le_bytes(), 123_456_789_u32.to_be_bytes()] {
            assert!(is_udp_hello(&old) && !is_udp_reply(&old));
        }
        assert!(is_udp_reply(&[0xb1, 0x68, 0xde, 0x3a]) && is_udp_reply(&[0x3a, 0xde, 0x68, 0xb1]));
        assert!(!is_udp_hello(b"98765") && !is_udp_hello(b"") && !is_udp_reply(b"9876"));
    }

    #[test]
    fn a_frame_is_read_in_any_pieces_and_stops_at_its_end() {
        let whole = frame(&serde_json::json!({ "tcp": true }));
        assert_eq!(whole[..4], [0, 0, 0, 12]);
        for cut in 0..=whole.len() {
            let mut reader = FrameReader::new(64);
            let (mut first, second) = whole.split_at(cut);
            let second = [second, &[State::DisplayResults.byte()]].concat();
            let mut second = &second[..];
            let early = reader.take(&mut first).unwrap();
            let body = early.or_else(|| reader.take(&mut second).unwrap()).unwrap();
            assert_eq!(body, br#"{"tcp":true}"#);
            assert!(second.ends_with(&[14]), "the state after it remains");
        }
    }

    #[test]
    fn a_long_frame_is_rejected_before_allocation() {
        let mut reader = FrameReader::new(64);
        assert_eq!(reader.take(&mut &[0xff, 0xff, 0xff, 0xff, b'{'][..]), Err(TooLong(u32::MAX)));
        let mut exact = FrameReader::new(2);
        assert_eq!(exact.take(&mut &[0, 0, 0, 2, b'{', b'}'][..]), Ok(Some(b"{}".to_vec())));
        let mut over = FrameReader::new(2);
        assert_eq!(over.take(&mut &[0, 0, 0, 3][..]), Err(TooLong(3)));
    }
}
