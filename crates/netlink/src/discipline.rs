//! Root queueing disciplines spelled as `tc` does: `fq maxrate 2gbit`,
//! `tbf rate 1gbit burst 32768b limit 1000000b`, `noqueue`.

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

/// Kinds that can be made anew from their text.
const KINDS: [&str; 8] = ["fq", "fq_codel", "pfifo_fast", "pfifo", "bfifo", "noqueue", "tbf", "mq"];

/// A discipline and its parameters, in the units of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discipline {
    kind: &'static str,
    /// By tc's word.
    values: BTreeMap<&'static str, u64>,
}

/// What is at the root of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// As tc spells it; of kinds that this module cannot make, the kind alone.
    pub text: String,
    /// The kernel made it by itself (its handle is 0), and makes one again
    /// when the root is deleted.
    pub is_default: bool,
}

/// A text that is not a discipline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseDisciplineError(String);

fn bad(reason: impl Into<String>) -> ParseDisciplineError {
    ParseDisciplineError(reason.into())
}

impl FromStr for Discipline {
    type Err = ParseDisciplineError;

    fn from_str(text: &str) -> Result<Self, ParseDisciplineError> {
        let mut words = text.split_whitespace();
        let word = words.next().unwrap_or_default();
        let kind = KINDS.into_iter().find(|kind| *kind == word).ok_or_else(|| {
            bad(format!("qdisc \"{word}\" is not one that can be set here: {}", KINDS.join(", ")))
        })?;
        let known = parameters::of(kind);
        let mut values = BTreeMap::new();
        while let Some(word) = words.next() {
            let unknown = || {
                let words: Vec<&str> = known.iter().map(|parameter| parameter.word).collect();
                let list = if words.is_empty() { "none".to_owned() } else { words.join(", ") };
                bad(format!("{kind} has no parameter \"{word}\" here: {list}"))
            };
            if let Some((parameter, on)) = known.iter().find_map(|parameter| parameter.switch(word)) {
                values.insert(parameter.word, u64::from(on));
                continue;
            }
            let parameter = known.iter().find(|parameter| parameter.word == word).ok_or_else(unknown)?;
            let value = words.next().ok_or_else(|| bad(format!("{kind} {word}: a value is missing")))?;
            values.insert(parameter.word, parameter.measure.parse(value).map_err(bad)?);
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
            if let Some(&value) = self.values.get(parameter.word) {
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

    /// Whether this one is of the kind of `wanted` and has each parameter that
    /// `wanted` names, as far as the kernel's units can hold it.
    pub fn has(&self, wanted: &Self) -> bool {
        let near = |(word, &value): (&&str, &u64)| {
            let slack = fixed::slack(wanted, word);
            self.values.get(word).is_some_and(|live| live.abs_diff(value) <= slack)
        };
        self.kind == wanted.kind && wanted.values.iter().all(near)
    }

    fn options(&self) -> Option<Vec<u8>> {
        match self.kind {
            "pfifo" | "bfifo" => fixed::limit(&self.values),
            "tbf" => Some(fixed::tbf(&self.values)),
            _ if self.values.is_empty() => None,
            kind => Some(parameters::encode(parameters::of(kind), &self.values)),
        }
    }

    /// Reads the options of a kind; `None` for kinds that cannot be set here.
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
    /// What is at the root of an interface.
    pub fn discipline(&mut self, interface: &str) -> Result<Root, NetlinkError> {
        let all = self.disciplines(interface)?;
        let root = all.into_iter().find(|message| message.header.parent == TcHandle::ROOT);
        // An interface that is down may have none yet; `tc` prints noqueue-like nothing.
        Ok(root.map_or_else(
            || Root { text: "noqueue".to_owned(), is_default: true },
            |message| read_root(&message),
        ))
    }

    /// Puts a fresh discipline at the root of an interface, with the kernel's
    /// defaults for parameters that are not named. A kernel without the kind
    /// refuses with `ENOENT`.
    pub fn set_discipline(&mut self, interface: &str, discipline: &Discipline) -> Result<(), NetlinkError> {
        let mut message = self.root_message(interface)?;
        message.attributes = vec![TcAttribute::Kind(discipline.kind.to_owned())];
        if let Some(options) = discipline.options() {
            message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)));
        }
        // Under a handle of its own: the kernel would change a root of the
        // same kind in place, and parameters that are not named would stay
        // (tc_modify_qdisc). 8000 and up are the kernel's to give.
        let all = self.disciplines(interface)?;
        let is_free = |major: &u16| all.iter().all(|other| other.header.handle.major != *major);
        message.header.handle.major = (1..0x8000).find(is_free).unwrap_or(1);
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(RouteNetlinkMessage::NewQueueDiscipline(message), flags, || {
            format!("put {discipline} on {interface}")
        })
    }

    /// Deletes the root discipline; the kernel makes its default one instead.
    pub fn delete_discipline(&mut self, interface: &str) -> Result<(), NetlinkError> {
        let message = self.root_message(interface)?;
        self.change(RouteNetlinkMessage::DelQueueDiscipline(message), 0, || {
            format!("delete the root qdisc of {interface}")
        })
    }

    fn disciplines(&mut self, interface: &str) -> Result<Vec<TcMessage>, NetlinkError> {
        let index = self.interface(interface)?.index.cast_signed();
        let question = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let answers = self.dump(question, || "list queueing disciplines".to_owned())?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
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
            // The library keeps the options of a kind that it does not know
            // as one attribute, header and all.
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
            Some(off) => (if value == 0 { off } else { self.word }).to_owned(),
            None => format!("{} {}", self.word, self.measure.spell(value)),
        }
    }

    fn switch(&'static self, word: &str) -> Option<(&'static Self, bool)> {
        let off = self.off?;
        (word == self.word || word == off).then_some((self, word == self.word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Discipline {
        text.parse().unwrap()
    }

    #[test]
    fn texts_come_back() {
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
    fn options_are_in_the_kernels_form() {
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
    fn says_what_is_wrong() {
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
