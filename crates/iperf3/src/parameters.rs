//! Parameters of a test requested by a client: one JSON object. A server checks every value against iperf3's
//! own bounds before it acts.

use clearstream_schema::flow::{Direction, Protocol};
use serde_json::{Map, Value};

use crate::{
    error::ProtocolError,
    object::{Object, parse},
};

/// Maximum length of the parameters: iperf3's own have some hundred bytes.
pub(crate) const LIMIT: u32 = 64 << 10;

/// Maximum streams of a direction.
pub(crate) const STREAMS_MAX: u32 = 128;
/// Largest transfer of a stream.
pub(crate) const TRANSFER_MAX: u64 = 1 << 20;
/// Largest socket buffer.
pub(crate) const WINDOW_MAX: u64 = 512 << 20;
/// Longest test and warm-up in seconds.
pub(crate) const DURATION_MAX_S: u64 = 86_400;
pub(crate) const WARM_UP_MAX_S: u64 = 600;
/// Sizes of a UDP datagram: two times, a number of 64 bits; the largest of IPv4.
pub(crate) const DATAGRAM: std::ops::RangeInclusive<u64> = 16..=65_507;
/// iperf3's own transfer when a client requests none.
const TRANSFER_DEFAULT: u64 = 128 << 10;
const DATAGRAM_DEFAULT: u64 = 1460;
/// Largest value of `TCP_MAXSEG`.
const MSS_MAX: u64 = 32_767;
/// Longest name of a congestion control (`TCP_CA_NAME_MAX`).
const CONGESTION_NAME_MAX: usize = 15;

/// A test requested by a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Direction, from the client's point of view.
    pub direction: Direction,
    /// Streams of each direction.
    pub streams: u32,
    /// Warm-up in seconds, not counted.
    pub omit_s: u32,
    /// Seconds after the warm-up; 0 when an amount of data, or the client, ends the test.
    pub duration_s: u32,
    /// Bytes of all streams, when that ends the test.
    pub bytes: Option<u64>,
    /// Bytes of a transfer, or of a datagram.
    pub length_bytes: u64,
    /// Socket buffers.
    pub window_bytes: Option<u32>,
    /// TCP segment size.
    pub mss_bytes: Option<u32>,
    /// `TCP_NODELAY`.
    pub no_delay: bool,
    /// Rate of each stream, paced by the sending program.
    pub rate_bps: Option<u64>,
    /// Rate of each stream, paced by the kernel.
    pub kernel_rate_bps: Option<u64>,
    /// Type-of-service byte.
    pub type_of_service: Option<u8>,
    /// Congestion control of the senders.
    pub congestion_control: Option<String>,
    /// 64-bit sequence numbers of datagrams, instead of 32-bit.
    pub wide_counters: bool,
    /// Senders use `sendfile`.
    pub send_file: bool,
    /// Receivers discard in the kernel.
    pub discard: bool,
    /// Whether the server's own output is requested with the results.
    pub server_output: bool,
    /// Core for the server's threads.
    pub server_core: Option<u32>,
    /// Version reported by the client.
    pub version: Option<String>,
    /// Keys that have no effect here.
    pub ignored: Vec<&'static str>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            protocol: Protocol::Tcp,
            direction: Direction::Forward,
            streams: 1,
            omit_s: 0,
            duration_s: 10,
            bytes: None,
            length_bytes: TRANSFER_DEFAULT,
            window_bytes: None,
            mss_bytes: None,
            no_delay: false,
            rate_bps: None,
            kernel_rate_bps: None,
            type_of_service: None,
            congestion_control: None,
            wide_counters: false,
            send_file: false,
            discard: false,
            server_output: false,
            server_core: None,
            version: None,
            ignored: Vec::new(),
        }
    }
}

/// Keys of other versions and builds without effect here.
const IGNORED: [&str; 8] = [
    "burst",
    "flowlabel",
    "dont_fragment",
    "mptcp",
    "repeating_payload",
    "authtoken",
    "blockcount",
    "extra_data",
];

impl Parameters {
    /// Encodes the message of a client.
    pub fn to_json(&self) -> Value {
        let mut keys = Map::new();
        let mut set = |key: &str, value: Value| drop(keys.insert(key.to_owned(), value));
        set(if self.protocol == Protocol::Udp { "udp" } else { "tcp" }, true.into());
        set("omit", self.omit_s.into());
        set("time", self.duration_s.into());
        set("num", self.bytes.unwrap_or(0).into());
        set("blockcount", 0.into());
        set("parallel", self.streams.into());
        match self.direction {
            Direction::Forward => {}
            Direction::Reverse => set("reverse", true.into()),
            Direction::Both => set("bidirectional", true.into()),
        }
        set("len", self.length_bytes.into());
        set("pacing_timer", 1000.into());
        let mut optional = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                set(key, value);
            }
        };
        optional("server_affinity", self.server_core.map(Value::from));
        optional("MSS", self.mss_bytes.map(Value::from));
        optional("nodelay", self.no_delay.then(|| true.into()));
        optional("window", self.window_bytes.map(Value::from));
        optional("bandwidth", self.rate_bps.map(Value::from));
        optional("fqrate", self.kernel_rate_bps.map(Value::from));
        optional("TOS", self.type_of_service.map(Value::from));
        optional("congestion", self.congestion_control.clone().map(Value::from));
        optional("udp_counters_64bit", self.wide_counters.then(|| 1.into()));
        optional("get_server_output", self.server_output.then(|| 1.into()));
        optional("zerocopy", self.send_file.then(|| 1.into()));
        optional("skip_rx_copy", self.discard.then(|| 1.into()));
        optional("client_version", self.version.clone().map(Value::from));
        Value::Object(keys)
    }

    /// Parses the message of a client.
    ///
    /// # Errors
    /// It is not a JSON object, or a value is out of bounds.
    pub fn read(text: &[u8]) -> Result<Self, ProtocolError> {
        let document = parse("parameters", text)?;
        let keys = Object::new("parameters", &document)?;
        let small = |key: &str, most: u64| {
            Ok::<_, ProtocolError>(keys.up_to(key, most)?.and_then(|number| u32::try_from(number).ok()))
        };
        let protocol = match (keys.flag("udp"), keys.flag("sctp")) {
            (_, true) => return Err(keys.wrong("sctp is not supported: use TCP or UDP".to_owned())),
            (true, _) => Protocol::Udp,
            _ => Protocol::Tcp,
        };
        let direction = match (keys.flag("reverse"), keys.flag("bidirectional")) {
            (_, true) => Direction::Both,
            (true, _) => Direction::Reverse,
            _ => Direction::Forward,
        };
        let read = Self {
            protocol,
            direction,
            streams: small("parallel", STREAMS_MAX.into())?.unwrap_or(1),
            omit_s: small("omit", WARM_UP_MAX_S)?.unwrap_or(0),
            duration_s: small("time", DURATION_MAX_S)?.unwrap_or(10),
            bytes: keys.count("num")?.filter(|bytes| *bytes > 0),
            length_bytes: length(&keys, protocol)?,
            window_bytes: small("window", WINDOW_MAX)?.filter(|bytes| *bytes > 0),
            mss_bytes: small("MSS", MSS_MAX)?.filter(|bytes| *bytes > 0),
            no_delay: keys.flag("nodelay"),
            rate_bps: keys.count("bandwidth")?.filter(|rate| *rate > 0),
            kernel_rate_bps: keys.count("fqrate")?.filter(|rate| *rate > 0),
            type_of_service: keys.up_to("TOS", 255)?.and_then(|byte| u8::try_from(byte).ok()),
            congestion_control: keys.text("congestion", CONGESTION_NAME_MAX)?.map(str::to_owned),
            wide_counters: keys.flag("udp_counters_64bit"),
            send_file: keys.flag("zerocopy"),
            discard: keys.flag("skip_rx_copy"),
            server_output: keys.flag("get_server_output"),
            server_core: small("server_affinity", 1024)?,
            version: keys.text("client_version", 64)?.map(str::to_owned),
            ignored: IGNORED.into_iter().filter(|key| keys.flag(key)).collect(),
        };
        if read.streams == 0 {
            return Err(keys.wrong(format!("parallel must be 1 to {STREAMS_MAX}")));
        }
        Ok(read)
    }
}

fn length(keys: &Object<'_>, protocol: Protocol) -> Result<u64, ProtocolError> {
    let requested = keys.up_to("len", TRANSFER_MAX)?.filter(|bytes| *bytes > 0);
    if protocol != Protocol::Udp {
        return Ok(requested.unwrap_or(TRANSFER_DEFAULT));
    }
    let size = requested.unwrap_or(DATAGRAM_DEFAULT);
    if DATAGRAM.contains(&size) {
        Ok(size)
    } else {
        Err(keys.wrong(format!("len of UDP must be {} to {}", DATAGRAM.start(), DATAGRAM.end())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Parameters, String> {
        Parameters::read(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_clients_message_is_read_as_it_was_written() {
        let requested = Parameters {
            protocol: Protocol::Udp,
            direction: Direction::Both,
            streams: 4,
            omit_s: 2,
            duration_s: 0,
            bytes: Some(1 << 40),
            length_bytes: 1448,
            window_bytes: Some(1 << 20),
            rate_bps: Some(100_000_000_000),
            type_of_service: Some(0xb8),
            wide_counters: true,
            server_core: Some(3),
            version: Some("3.12".to_owned()),
            ..Parameters::default()
        };
        assert_eq!(Parameters::read(requested.to_json().to_string().as_bytes()), Ok(requested));
    }

    /// What Debian's iperf3 3.12 sends for `-c 127.0.0.1 -R -P 2 -t 1`.
    #[test]
    fn the_message_of_a_released_version_is_read() {
        let text = r#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":2,"reverse":true,
            "len":131072,"pacing_timer":1000,"client_version":"3.12"}"#;
        let expected = Parameters {
            direction: Direction::Reverse,
            streams: 2,
            duration_s: 1,
            version: Some("3.12".to_owned()),
            ..Parameters::default()
        };
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn values_out_of_bounds_are_named() {
        for (text, expected) in [
            (r#"{"parallel":129}"#, "parallel must be 0 to 128"),
            (r#"{"parallel":0}"#, "parallel must be 1 to 128"),
            (r#"{"parallel":-1}"#, "parallel"),
            (r#"{"parallel":"8"}"#, "parallel must be a number"),
            (r#"{"omit":601}"#, "omit"),
            (r#"{"time":1e300}"#, "time"),
            (r#"{"len":1048577}"#, "len"),
            (r#"{"udp":true,"len":15}"#, "len of UDP"),
            (r#"{"udp":true,"len":65508}"#, "len of UDP"),
            (r#"{"window":1e10}"#, "window"),
            (r#"{"MSS":40000}"#, "MSS"),
            (r#"{"TOS":256}"#, "TOS"),
            (r#"{"congestion":"a-name-that-is-too-long"}"#, "congestion"),
            (r#"{"congestion":7}"#, "congestion"),
            (r#"{"num":1e30}"#, "num"),
            (r#"{"sctp":true}"#, "sctp"),
            ("[]", "not a JSON object"),
            ("{", "not a JSON object"),
            ("", "not a JSON object"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(read(r#"{"burst":10,"unheard-of":{}}"#).unwrap().ignored, ["burst"]);
    }
}
