//! What a driver tells about an interface over generic netlink
//! (Documentation/networking/ethtool-netlink.rst): rings, channels, features,
//! link speed and receive side scaling; and turning a feature on or off.

mod features;
pub(crate) mod message;
mod scaling;
mod set;
mod value;

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use clearstream_schema::host::{NowAndMax, Rss};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::message::{Reply, request, text};
pub(crate) use self::message::{attributes, number};

/// How long the kernel may take to answer one question. A driver asks its
/// device under the routing lock, which other work can hold for a while.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A question that got no answer.
#[derive(Debug, thiserror::Error)]
pub enum EthtoolError {
    /// The netlink socket could not be used.
    #[error("generic netlink: cannot {step}: {source}")]
    Socket {
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel has no ethtool netlink family (before 5.6, or built without).
    #[error("the kernel has no ethtool netlink family (it came with Linux 5.6)")]
    NoFamily,
    /// The driver or the kernel does not know this question.
    #[error("{interface}: the driver does not tell its {what}")]
    NotSupported {
        /// Interface name.
        interface: String,
        /// What was asked for.
        what: &'static str,
    },
    /// The kernel refused.
    #[error("{interface}: {what} refused: {source}")]
    Refused {
        /// Interface name.
        interface: String,
        /// What was asked for.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// No answer in time.
    #[error("{interface}: no answer about its {what} within {} s", ANSWER_TIMEOUT.as_secs())]
    NoAnswer {
        /// Interface name.
        interface: String,
        /// What was asked for.
        what: &'static str,
    },
    /// A number or switch that cannot be set so.
    #[error("{interface}: {reason}")]
    NotSettable {
        /// Interface name.
        interface: String,
        /// Why, and what can.
        reason: String,
    },
    /// The answer does not have the documented form.
    #[error("{interface}: the answer about its {what} is cut short")]
    Garbled {
        /// Interface name.
        interface: String,
        /// What was asked for.
        what: &'static str,
    },
}

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

/// A question of the ethtool family (`ETHTOOL_MSG_*` of linux/ethtool_netlink.h).
#[derive(Debug, Clone, Copy)]
struct Question {
    command: u8,
    what: &'static str,
}

const LINK_MODES: Question = Question { command: 4, what: "link speed" };
const FEATURES: Question = Question { command: 11, what: "features" };
const RINGS: Question = Question { command: 15, what: "rings" };
const CHANNELS: Question = Question { command: 17, what: "channels" };
const RSS: Question = Question { command: 38, what: "receive side scaling" };

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY` and their attributes.
const CONTROL_FAMILY: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `ETHTOOL_A_*_HEADER` and, nested in it, `ETHTOOL_A_HEADER_DEV_NAME`.
const HEADER: u16 = 1;
const HEADER_NAME: u16 = 2;

/// A netlink socket that asks drivers, in the network namespace of the thread
/// that opened it. Each question blocks for at most [`ANSWER_TIMEOUT`].
#[derive(Debug)]
pub struct Ethtool {
    socket: Socket,
    family: u16,
    sequence: u32,
}

impl Ethtool {
    /// Opens the socket and finds the family.
    pub fn open() -> Result<Self, EthtoolError> {
        let mut socket = Socket::new(NETLINK_GENERIC).map_err(socket_error("open a socket"))?;
        socket.bind_auto().map_err(socket_error("bind"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(socket_error("connect to the kernel"))?;
        let mut ethtool = Self { socket, family: CONTROL_FAMILY, sequence: 0 };
        let question = Question { command: GET_FAMILY, what: "family" };
        let reply = ethtool.exchange("ethtool", question, |out| {
            message::put(out, FAMILY_NAME, b"ethtool\0");
        });
        let body = match reply {
            Ok(body) => body,
            Err(EthtoolError::Refused { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(EthtoolError::NoFamily);
            }
            Err(error) => return Err(error),
        };
        let id = attributes(&body).find(|(kind, _)| *kind == FAMILY_ID).and_then(|(_, value)| number(value));
        ethtool.family = id.and_then(|id| u16::try_from(id).ok()).ok_or(EthtoolError::NoFamily)?;
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

    /// Features that are on or off, by the kernel's names
    /// (`tx-tcp-segmentation`) and by the group names that ethtool prints
    /// (`tcp-segmentation-offload`). Features that can never change are left out.
    pub fn features(&mut self, interface: &str) -> Result<BTreeMap<String, bool>, EthtoolError> {
        let body = self.ask(interface, FEATURES)?;
        Ok(features::read(&body))
    }

    /// Receive side scaling of the default context.
    pub fn rss(&mut self, interface: &str) -> Result<Rss, EthtoolError> {
        const FUNCTION: u16 = 3;
        const TABLE: u16 = 4;
        const KEY: u16 = 5;
        const INPUT_TRANSFORM: u16 = 6;
        const FLOW_FIELDS: u16 = 8;
        let body = self.ask(interface, RSS)?;
        let mut rss = Rss::default();
        for (kind, value) in attributes(&body) {
            match kind {
                FUNCTION => rss.hash_function = number(value).and_then(scaling::hash_function),
                TABLE => rss.indirection = value.chunks_exact(4).filter_map(number).collect(),
                KEY => rss.key = Some(value.iter().map(|byte| format!("{byte:02x}")).collect()),
                INPUT_TRANSFORM => rss.input_transform = number(value).and_then(scaling::input_transform),
                FLOW_FIELDS => rss.fields = scaling::fields(value),
                _ => {}
            }
        }
        // The kernel adds a hash function to drivers that have neither.
        if rss.key.is_none() && rss.indirection.is_empty() {
            return Err(EthtoolError::NotSupported { interface: interface.to_owned(), what: RSS.what });
        }
        Ok(rss)
    }

    /// The attributes of an answer that are numbers of 32 bits.
    fn numbers(&mut self, interface: &str, question: Question) -> Result<BTreeMap<u16, u32>, EthtoolError> {
        let body = self.ask(interface, question)?;
        Ok(attributes(&body).filter_map(|(kind, value)| Some((kind, number(value)?))).collect())
    }

    fn ask(&mut self, interface: &str, question: Question) -> Result<Vec<u8>, EthtoolError> {
        self.exchange(interface, question, |out| {
            message::nest(out, HEADER, |out| message::put(out, HEADER_NAME, &text(interface)));
        })
    }

    /// Sends one question and waits for its answer.
    fn exchange(
        &mut self,
        interface: &str,
        question: Question,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>, EthtoolError> {
        self.sequence = self.sequence.wrapping_add(1);
        let out = request(self.family, question.command, self.sequence, fill);
        self.converse(interface, question.what, &out)
    }

    /// Sends a change and waits for its acknowledgement.
    fn change(
        &mut self,
        interface: &str,
        question: Question,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), EthtoolError> {
        self.sequence = self.sequence.wrapping_add(1);
        let out = message::with_acknowledgement(request(self.family, question.command, self.sequence, fill));
        self.converse(interface, question.what, &out).map(|_| ())
    }

    fn converse(&mut self, interface: &str, what: &'static str, out: &[u8]) -> Result<Vec<u8>, EthtoolError> {
        self.socket.send(out, 0).map_err(socket_error("send"))?;
        let interface = || interface.to_owned();
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            if !self.readable_before(deadline)? {
                return Err(EthtoolError::NoAnswer { interface: interface(), what });
            }
            let (datagram, _) = self.socket.recv_from_full().map_err(socket_error("receive"))?;
            match message::reply(&datagram, self.sequence) {
                // An answer to a question that timed out earlier.
                Reply::NotOurs => {}
                Reply::Answer(body) => return Ok(body),
                Reply::Error(0) => return Ok(Vec::new()),
                Reply::Garbled => return Err(EthtoolError::Garbled { interface: interface(), what }),
                // EOPNOTSUPP: no such question for this driver or this kernel.
                Reply::Error(code) if code == rustix::io::Errno::OPNOTSUPP.raw_os_error() => {
                    return Err(EthtoolError::NotSupported { interface: interface(), what });
                }
                Reply::Error(code) => {
                    let source = io::Error::from_raw_os_error(code);
                    return Err(EthtoolError::Refused { interface: interface(), what, source });
                }
            }
        }
    }

    /// Waits for a datagram; false when the deadline came first.
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

fn socket_error(step: &'static str) -> impl Fn(io::Error) -> EthtoolError {
    move |source| EthtoolError::Socket { step, source }
}

/// Set now and at most; `None` when the device has none of the kind.
fn pair(numbers: &BTreeMap<u16, u32>, now: u16, max: u16) -> Option<NowAndMax> {
    let max_count = numbers.get(&max).copied().unwrap_or(0);
    let now_count = numbers.get(&now).copied().unwrap_or(0);
    (max_count > 0 || now_count > 0).then_some(NowAndMax { now_count, max_count })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What `ethtool OPTION INTERFACE` prints, as words before and after the colon.
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

    /// The lasting interfaces of this machine (others come and go while tests
    /// run), beside ethtool's own output.
    #[test]
    fn tells_what_ethtool_prints() {
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
                assert!(lines.is_empty(), "{name} told ethtool only");
                continue;
            };
            for (feature, value) in &lines {
                // Features that can never change are not ours to show.
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

    #[test]
    fn names_the_interface_that_is_not_there() {
        let mut ethtool = Ethtool::open().unwrap();
        let message = ethtool.rings("no.such0").unwrap_err().to_string();
        assert!(message.starts_with("no.such0: rings refused: No such device"), "{message}");
        let message = ethtool.rings("a-name-longer-than-the-kernel-takes").unwrap_err().to_string();
        assert!(message.contains("refused"), "{message}");
    }

    #[test]
    fn says_what_a_driver_does_not_tell() {
        let mut ethtool = Ethtool::open().unwrap();
        assert!(matches!(ethtool.rings("lo"), Err(EthtoolError::NotSupported { .. })));
        assert!(matches!(ethtool.rss("lo"), Err(EthtoolError::NotSupported { .. })));
        assert!(ethtool.features("lo").unwrap()["rx-gro"]);
    }
}
