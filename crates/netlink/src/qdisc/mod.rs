//! Root queueing disciplines in the syntax of `tc`: `fq maxrate 2gbit`, `tbf rate 1gbit burst 32768b limit
//! 1000000b`, `noqueue`.

mod fixed;
mod measure;
mod parameters;

use std::{collections::BTreeMap, fmt, str::FromStr};

use netlink_packet_core::{DefaultNla, Emitable, NLM_F_CREATE, NLM_F_REPLACE, Nla};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcHandle, TcMessage},
};

use self::parameters::Parameter;
use crate::{NetlinkError, RouteSocket};

/// `TCA_OPTIONS` of linux/rtnetlink.h.
const TCA_OPTIONS: u16 = 2;

/// Kinds that can be created from their text.
const KINDS: [&str; 8] = ["fq", "fq_codel", "pfifo_fast", "pfifo", "bfifo", "noqueue", "tbf", "mq"];

/// A discipline and its parameters, in the units of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discipline {
    kind: &'static str,
    /// Values by tc keyword.
    values: BTreeMap<&'static str, u64>,
}

/// The root discipline of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// In the syntax of tc; for kinds that this module cannot create, the kind alone.
    pub text: String,
    /// The kernel created it by itself (its handle is 0), and creates one when the root is deleted.
    pub is_default: bool,
}

/// A text that is not a valid discipline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseDisciplineError(String);

fn bad(reason: impl Into<String>) -> ParseDisciplineError {
    ParseDisciplineError(reason.into())
}

impl FromStr for Discipline {
    type Err = ParseDisciplineError;

    fn from_str(text: &str) -> Result<Self, ParseDisciplineError> {
        let mut tokens = text.split_whitespace();
        let token = tokens.next().unwrap_or_default();
        let kind = KINDS.into_iter().find(|kind| *kind == token).ok_or_else(|| {
            bad(format!("qdisc \"{token}\" is not one that can be set here: {}", KINDS.join(", ")))
        })?;
        let known = parameters::of(kind);
        let mut values = BTreeMap::new();
        while let Some(token) = tokens.next() {
            let unknown = || {
                let keywords: Vec<&str> = known.iter().map(|parameter| parameter.keyword).collect();
                let list = if keywords.is_empty() { "none".to_owned() } else { keywords.join(", ") };
                bad(format!("{kind} has no parameter \"{token}\" here: {list}"))
            };
            if let Some((parameter, on)) = known.iter().find_map(|parameter| parameter.switch(token)) {
                values.insert(parameter.keyword, u64::from(on));
                continue;
            }
            let parameter = known.iter().find(|parameter| parameter.keyword == token).ok_or_else(unknown)?;
            let value = tokens.next().ok_or_else(|| bad(format!("{kind} {token}: a value is missing")))?;
            values.insert(parameter.keyword, parameter.measure.parse(value).map_err(bad)?);
        }
        if kind == "tbf" {
            fixed::complete_tbf(&mut values).map_err(bad)?;
        }
        Ok(Self { kind, values })
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)?;
        for parameter in parameters::of(self.kind) {
            if let Some(&value) = self.values.get(parameter.keyword) {
                write!(f, " {}", parameter.spell(value))?;
            }
        }
        Ok(())
    }
}

impl Discipline {
    /// `fq`, `noqueue`.
    pub fn kind(&self) -> &str {
        self.kind
    }

    /// Whether this discipline is of the kind of `wanted` and has each parameter set in `wanted`, to the
    /// precision of the kernel's units.
    pub fn has(&self, wanted: &Self) -> bool {
        let close = |(token, &value): (&&str, &u64)| {
            let slack = fixed::slack(wanted, token);
            self.values.get(token).is_some_and(|live| live.abs_diff(value) <= slack)
        };
        self.kind == wanted.kind && wanted.values.iter().all(close)
    }

    fn options(&self) -> Option<Vec<u8>> {
        match self.kind {
            "pfifo" | "bfifo" => fixed::limit(&self.values),
            "tbf" => Some(fixed::tbf(&self.values)),
            _ if self.values.is_empty() => None,
            kind => Some(parameters::encode(parameters::of(kind), &self.values)),
        }
    }

    /// Parses the options of a kind; `None` for kinds that cannot be set here.
    fn read(kind: &str, options: &[u8]) -> Option<Self> {
        let kind = KINDS.into_iter().find(|known| *known == kind)?;
        let values = match kind {
            "pfifo" | "bfifo" => fixed::read_limit(options),
            "tbf" => fixed::read_tbf(options),
            _ => parameters::decode(parameters::of(kind), options),
        };
        Some(Self { kind, values })
    }
}

impl RouteSocket {
    /// Reads the root discipline of an interface.
    pub fn discipline(&mut self, interface: &str) -> Result<Root, NetlinkError> {
        let all = self.disciplines(interface)?;
        let root = all.into_iter().find(|message| message.header.parent == TcHandle::ROOT);
        // An interface that is down may have none yet.
        Ok(root.map_or_else(
            || Root { text: "noqueue".to_owned(), is_default: true },
            |message| read_root(&message),
        ))
    }

    /// Sets a new root discipline on an interface, with the kernel's defaults for unspecified parameters. A
    /// kernel without the kind fails with `ENOENT`.
    pub fn set_discipline(&mut self, interface: &str, discipline: &Discipline) -> Result<(), NetlinkError> {
        let mut message = self.root_message(interface)?;
        message.attributes = vec![TcAttribute::Kind(discipline.kind.to_owned())];
        if let Some(options) = discipline.options() {
            message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)));
        }
        // With an explicit handle: otherwise the kernel would change a root of the same kind in place and
        // keep unspecified parameters (tc_modify_qdisc). Handles from 8000 are assigned by the kernel.
        let all = self.disciplines(interface)?;
        let is_free = |major: &u16| all.iter().all(|other| other.header.handle.major != *major);
        message.header.handle.major = (1..0x8000).find(is_free).unwrap_or(1);
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(RouteNetlinkMessage::NewQueueDiscipline(message), flags, || {
            format!("put {discipline} on {interface}")
        })
    }

    /// Deletes the root discipline; the kernel replaces it by its default.
    pub fn delete_discipline(&mut self, interface: &str) -> Result<(), NetlinkError> {
        let message = self.root_message(interface)?;
        self.change(RouteNetlinkMessage::DelQueueDiscipline(message), 0, || {
            format!("delete the root qdisc of {interface}")
        })
    }

    fn disciplines(&mut self, interface: &str) -> Result<Vec<TcMessage>, NetlinkError> {
        let index = self.interface(interface)?.index.cast_signed();
        let query = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let replies = self.dump(query, || "list queueing disciplines".to_owned())?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| match reply {
                RouteNetlinkMessage::NewQueueDiscipline(message) if message.header.index == index => {
                    Some(message)
                }
                _ => None,
            })
            .collect())
    }

    pub(crate) fn root_message(&mut self, interface: &str) -> Result<TcMessage, NetlinkError> {
        let mut message = TcMessage::default();
        message.header.index = self.interface(interface)?.index.cast_signed();
        message.header.parent = TcHandle::ROOT;
        Ok(message)
    }
}

fn read_root(message: &TcMessage) -> Root {
    let kind = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.clone()),
        _ => None,
    });
    let kind = kind.unwrap_or_default();
    let options = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Options(options) => {
            let mut bytes = vec![0; options.as_slice().buffer_len()];
            options.as_slice().emit(&mut bytes);
            // The library keeps the options of an unknown kind as one attribute, header included.
            let is_whole =
                matches!(options.as_slice(), [only] if only.kind() == TCA_OPTIONS && kind != "fq_codel");
            Some(if is_whole { bytes.split_off(4.min(bytes.len())) } else { bytes })
        }
        _ => None,
    });
    let text = Discipline::read(&kind, &options.unwrap_or_default())
        .map_or_else(|| kind.clone(), |discipline| discipline.to_string());
    Root { text, is_default: message.header.handle == TcHandle { major: 0, minor: 0 } }
}

impl Parameter {
    fn spell(&self, value: u64) -> String {
        match self.off {
            Some(off) => (if value == 0 { off } else { self.keyword }).to_owned(),
            None => format!("{} {}", self.keyword, self.measure.spell(value)),
        }
    }

    fn switch(&'static self, token: &str) -> Option<(&'static Self, bool)> {
        let off = self.off?;
        (token == self.keyword || token == off).then_some((self, token == self.keyword))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Discipline {
        text.parse().unwrap()
    }

    #[test]
    fn texts_round_trip() {
        for text in [
            "noqueue",
            "pfifo limit 1000",
            "fq limit 10000 flow_limit 100 maxrate 2gbit",
            "fq_codel limit 10240 target 5ms interval 100ms noecn",
            "tbf rate 1gbit burst 32768b limit 1000000b",
        ] {
            assert_eq!(parsed(text).to_string(), text);
        }
        assert_eq!(parsed("fq maxrate 40Mbit nopacing").to_string(), "fq maxrate 40mbit nopacing");
    }

    /// The attributes of `tc qdisc replace dev X root fq maxrate 2gbit limit 5000`
    /// by linux/pkt_sched.h: TCA_FQ_PLIMIT is 1, TCA_FQ_FLOW_MAX_RATE 7, in bytes/s.
    #[test]
    fn options_have_the_kernels_format() {
        let bytes = parsed("fq maxrate 2gbit limit 5000").options().unwrap();
        let mut expected = Vec::new();
        for (kind, value) in [(1u16, 5000u32), (7, 250_000_000)] {
            expected.extend_from_slice(&8u16.to_ne_bytes());
            expected.extend_from_slice(&kind.to_ne_bytes());
            expected.extend_from_slice(&value.to_ne_bytes());
        }
        assert_eq!(bytes, expected);
        let fq = Discipline::read("fq", &bytes).unwrap();
        assert_eq!(fq.to_string(), "fq limit 5000 maxrate 2gbit");
        assert!(fq.has(&parsed("fq maxrate 2000mbit")) && !fq.has(&parsed("fq maxrate 3gbit")));
        assert!(!fq.has(&parsed("fq_codel")));
    }

    #[test]
    fn errors_name_the_mistake() {
        for (text, part) in [
            ("htb default 1", "not one that can be set here"),
            ("fq speed 3", "no parameter \"speed\""),
            ("fq maxrate", "a value is missing"),
            ("fq maxrate fast", "not a rate"),
            ("tbf rate 1gbit", "burst"),
            ("tbf burst 1k", "rate"),
            ("pfifo limit 99999999999", "too large"),
        ] {
            let message = text.parse::<Discipline>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
