//! Driver state of an interface over generic netlink (Documentation/networking/ethtool-netlink.rst): rings,
//! channels, features, link speed, coalescing and receive side scaling; and setting features. What a kernel's
//! netlink family lacks is read by ioctl.

mod coalescing;
mod counts;
mod driver;
mod error;
mod features;
pub(crate) mod message;
mod scaling;
mod set;
mod statistics;
mod value;

use std::{collections::BTreeMap, io, time::Instant};

use clearstream_schema::host::NowAndMax;
use clearstream_sys::ethtool::DriverSocket;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) use self::message::{attributes, number};
pub use self::{
    error::{EthtoolError, REPLY_TIMEOUT},
    statistics::PauseFrames,
};
use self::{
    error::{NOT_SUPPORTED, control_error, socket_error, unchangeable},
    message::{Reply, request, text},
};
use crate::refusal::request_explanations;

/// Ring sizes in descriptors; absent where the driver has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rings {
    /// Receive ring.
    pub receive: Option<NowAndMax>,
    /// Transmit ring.
    pub transmit: Option<NowAndMax>,
}

/// Channel counts; absent where the driver has none of the kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Channels {
    /// Receive only.
    pub receive: Option<NowAndMax>,
    /// Transmit only.
    pub transmit: Option<NowAndMax>,
    /// One vector for both directions.
    pub combined: Option<NowAndMax>,
}

/// A request of the ethtool family (`ETHTOOL_MSG_*` of linux/ethtool_netlink.h).
#[derive(Debug, Clone, Copy)]
struct Query {
    command: u8,
    what: &'static str,
}

const LINK_MODES: Query = Query { command: 4, what: "link speed" };
const FEATURES: Query = Query { command: 11, what: "features" };
const RINGS: Query = Query { command: 15, what: "rings" };
const CHANNELS: Query = Query { command: 17, what: "channels" };

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY` and their attributes.
const CONTROL_FAMILY: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Invalid family number: the kernel has no ethtool family.
const NO_FAMILY: u16 = 0;

/// `ETHTOOL_A_*_HEADER` and, nested in it, `ETHTOOL_A_HEADER_DEV_NAME`.
const HEADER: u16 = 1;
const HEADER_NAME: u16 = 2;

/// Sockets for driver requests, in the network namespace of the thread
/// that opened them. Each request blocks for at most [`REPLY_TIMEOUT`].
#[derive(Debug)]
pub struct Ethtool {
    socket: Socket,
    family: u16,
    sequence: u32,
    control: DriverSocket,
}

impl Ethtool {
    /// Opens the sockets and resolves the family. On a kernel without it (before 5.6) requests go by ioctl
    /// alone; requests without an ioctl here, link speed, pause frames and changes of coalescing, fail with
    /// `NoFamily`.
    pub fn open() -> Result<Self, EthtoolError> {
        let mut socket = Socket::new(NETLINK_GENERIC).map_err(socket_error("open a socket"))?;
        socket.bind_auto().map_err(socket_error("bind"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(socket_error("connect to the kernel"))?;
        request_explanations(&mut socket);
        let control = DriverSocket::open().map_err(socket_error("open a socket for ioctls"))?;
        let mut ethtool = Self { socket, family: CONTROL_FAMILY, sequence: 0, control };
        let query = Query { command: GET_FAMILY, what: "family" };
        let reply = ethtool.exchange("ethtool", query, |out| {
            message::put(out, FAMILY_NAME, b"ethtool\0");
        });
        ethtool.family = match reply {
            Ok(body) => family(&body).ok_or(EthtoolError::NoFamily)?,
            Err(EthtoolError::Refused { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                NO_FAMILY
            }
            Err(error) => return Err(error),
        };
        Ok(ethtool)
    }

    /// Link speed in bits/s; `None` while the link is down or has no speed.
    pub fn link_speed_bps(&mut self, interface: &str) -> Result<Option<u64>, EthtoolError> {
        const SPEED: u16 = 5;
        let numbers = self.numbers(interface, LINK_MODES)?;
        // SPEED_UNKNOWN is -1; the unit is Mb/s.
        Ok(numbers
            .get(&SPEED)
            .filter(|&&speed| speed != 0 && speed != u32::MAX)
            .map(|&speed| u64::from(speed) * 1_000_000))
    }

    /// Ring sizes.
    pub fn rings(&mut self, interface: &str) -> Result<Rings, EthtoolError> {
        let numbers = self.numbers(interface, RINGS)?;
        Ok(Rings { receive: pair(&numbers, 6, 2), transmit: pair(&numbers, 9, 5) })
    }

    /// Channel counts.
    pub fn channels(&mut self, interface: &str) -> Result<Channels, EthtoolError> {
        let numbers = self.numbers(interface, CHANNELS)?;
        Ok(Channels {
            receive: pair(&numbers, 6, 2),
            transmit: pair(&numbers, 7, 3),
            combined: pair(&numbers, 9, 5),
        })
    }

    /// State of the features, by the kernel's names (`tx-tcp-segmentation`) and by the group names of ethtool
    /// (`tcp-segmentation-offload`). Features that can never change are omitted.
    pub fn features(&mut self, interface: &str) -> Result<BTreeMap<String, bool>, EthtoolError> {
        match self.query(interface, FEATURES) {
            Err(EthtoolError::NoFamily) => self.features_by_ioctl(interface),
            body => Ok(features::read(&body?)),
        }
    }

    /// The attributes of a reply that are numbers of at most 32 bits.
    fn numbers(&mut self, interface: &str, query: Query) -> Result<BTreeMap<u16, u32>, EthtoolError> {
        match self.query(interface, query) {
            Err(EthtoolError::NoFamily) => self.numbers_by_ioctl(interface, query),
            body => Ok(attributes(&body?).filter_map(|(kind, value)| Some((kind, number(value)?))).collect()),
        }
    }

    fn query(&mut self, interface: &str, query: Query) -> Result<Vec<u8>, EthtoolError> {
        self.exchange(interface, query, |out| {
            message::nest(out, HEADER, |out| message::put(out, HEADER_NAME, &text(interface)));
        })
    }

    /// Sends one request and waits for its reply.
    fn exchange(
        &mut self,
        interface: &str,
        query: Query,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>, EthtoolError> {
        let out = self.request(query, fill)?;
        self.transact(interface, query.what, &out)
    }

    /// Sends a change and waits for its acknowledgement.
    fn change(
        &mut self,
        interface: &str,
        query: Query,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), EthtoolError> {
        let out = message::with_acknowledgement(self.request(query, fill)?);
        self.transact(interface, query.what, &out).map(|_| ()).map_err(unchangeable)
    }

    fn request(&mut self, query: Query, fill: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u8>, EthtoolError> {
        if self.family == NO_FAMILY {
            return Err(EthtoolError::NoFamily);
        }
        self.sequence = self.sequence.wrapping_add(1);
        Ok(request(self.family, query.command, self.sequence, fill))
    }

    fn transact(&mut self, interface: &str, what: &'static str, out: &[u8]) -> Result<Vec<u8>, EthtoolError> {
        self.socket.send(out, 0).map_err(socket_error("send"))?;
        let interface = || interface.to_owned();
        let deadline = Instant::now() + REPLY_TIMEOUT;
        loop {
            if !self.readable_before(deadline)? {
                return Err(EthtoolError::Timeout { interface: interface(), what });
            }
            let (datagram, _) = self.socket.recv_from_full().map_err(socket_error("receive"))?;
            match message::reply(&datagram, out) {
                // A reply to a request that timed out earlier.
                Reply::NotOurs => {}
                Reply::Data(body) => return Ok(body),
                Reply::Acknowledged => return Ok(Vec::new()),
                Reply::Garbled => return Err(EthtoolError::Garbled { interface: interface(), what }),
                // EOPNOTSUPP: the driver or the kernel does not support the request.
                Reply::Refused(source)
                    if source.raw_os_error() == Some(NOT_SUPPORTED) && source.explanation().is_none() =>
                {
                    return Err(EthtoolError::NotSupported { interface: interface(), what });
                }
                Reply::Refused(source) => {
                    return Err(EthtoolError::Refused { interface: interface(), what, source });
                }
            }
        }
    }

    /// Waits for a datagram; false when the deadline passed first.
    fn readable_before(&self, deadline: Instant) -> Result<bool, EthtoolError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout =
                Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(count) => return Ok(count > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(socket_error("wait")(error.into())),
            }
        }
    }
}

/// Number of a family in the controller's response.
fn family(body: &[u8]) -> Option<u16> {
    let (_, id) = attributes(body).find(|(kind, _)| *kind == FAMILY_ID)?;
    u16::try_from(number(id)?).ok()
}

/// Current and maximum value; `None` when the device has none of the kind.
fn pair(numbers: &BTreeMap<u16, u32>, now: u16, max: u16) -> Option<NowAndMax> {
    let max_count = numbers.get(&max).copied().unwrap_or(0);
    let now_count = numbers.get(&now).copied().unwrap_or(0);
    (max_count > 0 || now_count > 0).then_some(NowAndMax { now_count, max_count })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clearstream_schema::host::CoalescingValue;

    use super::*;

    /// What `ethtool OPTION INTERFACE` prints, as fields before and after the colon.
    fn printed(option: &str, interface: &str) -> Vec<(String, String)> {
        let output = Command::new("ethtool").args([option, interface]).output().unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect()
    }

    fn count(lines: &[(String, String)], name: &str, place: usize) -> Option<u32> {
        lines.iter().filter(|(found, _)| found == name).nth(place)?.1.parse().ok().filter(|&count| count > 0)
    }

    fn same(now_and_max: Option<NowAndMax>, lines: &[(String, String)], name: &str) {
        assert_eq!(now_and_max.map(|pair| pair.max_count), count(lines, name, 0), "{name} maximum");
        assert_eq!(now_and_max.map(|pair| pair.now_count), count(lines, name, 1), "{name} now");
    }

    /// The permanent interfaces of this machine (others come and go while tests run), compared with ethtool's
    /// own output.
    #[test]
    fn matches_ethtool() {
        if Command::new("ethtool").arg("--version").output().is_err() {
            panic!("this test compares with ethtool: apt-get install ethtool");
        }
        let mut ethtool = Ethtool::open().unwrap();
        for entry in std::fs::read_dir("/sys/class/net").unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name != "lo" && !entry.path().join("device").exists() {
                continue;
            }
            let lines = printed("-k", &name);
            let Ok(features) = ethtool.features(&name) else {
                assert!(lines.is_empty(), "{name} reported to ethtool only");
                continue;
            };
            for (feature, value) in &lines {
                // Features that can never change are not shown.
                if feature == &format!("Features for {name}") || !features.contains_key(feature) {
                    assert!(value.is_empty() || value.contains("[fixed]"), "{name} {feature}: {value}");
                    continue;
                }
                assert_eq!(features[feature], value.starts_with("on"), "{name} {feature}: {value}");
            }
            assert!(features.contains_key("generic-receive-offload"), "{name}");
            let lines = printed("-g", &name);
            let rings = ethtool.rings(&name).unwrap_or_default();
            same(rings.receive, &lines, "RX");
            same(rings.transmit, &lines, "TX");
            let lines = printed("-l", &name);
            let channels = ethtool.channels(&name).unwrap_or_default();
            same(channels.receive, &lines, "RX");
            same(channels.transmit, &lines, "TX");
            same(channels.combined, &lines, "Combined");
        }
    }

    /// Both sources of receive side scaling and of coalescing must agree, on every interface that has any.
    #[test]
    fn netlink_and_ioctl_agree() {
        let mut ethtool = Ethtool::open().unwrap();
        for entry in std::fs::read_dir("/sys/class/net").unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let by_netlink = ethtool.rss_by_netlink(&name);
            // For a driver without key and table the kernel reports no function either from 6.12 on.
            if let (Ok(one), Ok(other)) = (by_netlink, ethtool.rss_by_ioctl(&name)) {
                assert_eq!((&one.key, &one.indirection), (&other.key, &other.indirection), "{name}");
                assert_eq!(one.input_transform, other.input_transform, "{name}");
                assert!(one.hash_function.is_none() || one.hash_function == other.hash_function, "{name}");
            }
            if let Ok(found) = ethtool.coalescing(&name) {
                let by_ioctl = ethtool.coalescing_by_ioctl(&name).unwrap();
                for (value, by_ioctl) in by_ioctl.iter().filter_map(|(key, it)| Some((found.get(key)?, it))) {
                    assert_eq!(value, by_ioctl, "{name}");
                }
                let set = found.iter().filter(|(_, value)| **value != CoalescingValue::Number(0));
                let set = set.filter(|(_, value)| **value != CoalescingValue::Switch(false));
                assert!(set.clone().all(|(key, value)| by_ioctl.get(key) == Some(value)), "{name}");
            }
        }
    }

    /// `ethtool -c` and `-i` of the permanent interfaces.
    #[test]
    fn coalescing_and_driver_match_ethtool() {
        let mut ethtool = Ethtool::open().unwrap();
        let mut compared = 0;
        for entry in std::fs::read_dir("/sys/class/net").unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name != "lo" && !entry.path().join("device").exists() {
                continue;
            }
            let lines = printed("-i", &name);
            let printed_value =
                |key: &str| lines.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str());
            match ethtool.driver_information(&name) {
                Ok(found) => {
                    assert_eq!(Some(found.name.as_str()), printed_value("driver"), "{name}");
                    assert_eq!(
                        found.version.as_deref().unwrap_or(""),
                        printed_value("version").unwrap(),
                        "{name}"
                    );
                    let firmware = found.firmware_version.as_deref().unwrap_or("");
                    assert_eq!(firmware, printed_value("firmware-version").unwrap(), "{name}");
                    assert_eq!(
                        found.bus.as_deref().unwrap_or(""),
                        printed_value("bus-info").unwrap(),
                        "{name}"
                    );
                    compared += 1;
                }
                Err(_) => assert!(lines.is_empty(), "{name} reported to ethtool only"),
            }
            let found = ethtool.coalescing(&name).unwrap_or_default();
            for (key, value) in printed("-c", &name) {
                let key = key.replace("rx-frame-", "rx-frames-").replace("tx-frame-", "tx-frames-");
                // "Adaptive RX: off  TX: n/a" is one line.
                if key == "Adaptive RX" {
                    let off_or_on = value.split_whitespace().next().filter(|field| *field != "n/a");
                    let expected = off_or_on.map(|field| CoalescingValue::Switch(field == "on"));
                    assert_eq!(found.get("adaptive-rx").copied(), expected, "{name}");
                } else if let Ok(number) = value.parse() {
                    assert_eq!(found.get(&key), Some(&CoalescingValue::Number(number)), "{name} {key}");
                } else if value == "n/a" {
                    assert_eq!(found.get(&key), None, "{name} {key}");
                }
            }
        }
        assert!(compared > 0 || !std::path::Path::new("/sys/class/net/eth0/device").exists());
    }

    /// As on a kernel before 5.6.
    #[test]
    fn without_the_family_ioctls_can_read() {
        let mut ethtool = Ethtool::open().unwrap();
        let names = || std::fs::read_dir("/sys/class/net").unwrap();
        for name in names().map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
            let by_ioctl = ethtool.coalescing_by_ioctl(&name).ok();
            let driver = ethtool.driver_information(&name).ok();
            let counts = (ethtool.rings(&name).ok(), ethtool.channels(&name).ok());
            let features = ethtool.features(&name).ok();
            let family = std::mem::replace(&mut ethtool.family, NO_FAMILY);
            assert!(matches!(ethtool.link_speed_bps(&name), Err(EthtoolError::NoFamily)));
            assert_eq!(ethtool.coalescing(&name).ok(), by_ioctl, "{name}");
            assert_eq!(ethtool.driver_information(&name).ok(), driver, "{name}");
            assert_eq!((ethtool.rings(&name).ok(), ethtool.channels(&name).ok()), counts, "{name}");
            assert_eq!(ethtool.features(&name).ok(), features, "{name}");
            ethtool.family = family;
        }
    }

    /// Features and channels set without the family, compared with `ethtool`.
    #[test]
    fn root_without_the_family_ioctls_can_set() {
        let host = clearstream_testkit::namespace::Host::new();
        host.tool(
            "ip link add v0 numrxqueues 4 numtxqueues 4 type veth peer name v1 numrxqueues 4 numtxqueues 4",
        );
        let mut ethtool = host.run(Ethtool::open).unwrap();
        ethtool.family = NO_FAMILY;
        for (on, printed) in [("off", "generic-receive-offload: off"), ("on", "generic-receive-offload: on")]
        {
            ethtool.set_value("v0", "features", "rx-gro", on).unwrap();
            assert!(host.tool("ethtool -k v0").contains(printed), "{printed}");
            assert_eq!(ethtool.value("v0", "features", "rx-gro").unwrap().as_deref(), Some(on));
        }
        for count in ["3", "2"] {
            ethtool.set_value("v0", "channels", "rx", count).unwrap();
            let shown = host.tool("ethtool -l v0");
            let rx: Vec<&str> =
                shown.lines().filter_map(|line| line.strip_prefix("RX:")).map(str::trim).collect();
            assert_eq!(rx, ["4", count], "{shown}");
            assert_eq!(ethtool.value("v0", "channels", "rx").unwrap().as_deref(), Some(count));
        }
        let error = ethtool.set_value("v0", "channels", "rx", "99").unwrap_err().to_string();
        assert!(error.starts_with("v0: channels refused"), "{error}");
        let error = ethtool.set_value("v0", "features", "no-such", "on").unwrap_err().to_string();
        assert!(error.contains("features"), "{error}");
        assert_eq!(ethtool.value("lo", "channels", "rx").unwrap(), None);
    }

    #[test]
    fn errors_name_the_missing_interface() {
        let mut ethtool = Ethtool::open().unwrap();
        let message = ethtool.rings("no.such0").unwrap_err().to_string();
        assert!(message.starts_with("no.such0: rings refused: No such device"), "{message}");
        let message = ethtool.rings("a-name-longer-than-the-kernel-takes").unwrap_err().to_string();
        assert!(message.contains("refused"), "{message}");
    }

    #[test]
    fn reports_what_a_driver_does_not_support() {
        let mut ethtool = Ethtool::open().unwrap();
        assert!(matches!(ethtool.rings("lo"), Err(EthtoolError::NotSupported { .. })));
        assert!(matches!(ethtool.rss("lo"), Err(EthtoolError::NotSupported { .. })));
        assert!(ethtool.features("lo").unwrap()["rx-gro"]);
    }
}
