//! Packets that a rule takes by more than addresses: marks, users, protocols, ports, and the
//! interface that a socket is bound to (ip-rule(8)).

use clearstream_schema::routing::RuleEntry;

use super::{OnlyIf, PORTS, Question, USER};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// What a packet is to have so that a rule takes it, one value of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Condition {
    mark: Option<u32>,
    user: Option<u32>,
    protocol: Option<u8>,
    source_port: Option<u16>,
    destination_port: Option<u16>,
    output: Option<String>,
}

/// Numbers from one to another.
type Range = (u32, u32);

/// What a rule asks, as it is written.
#[derive(Debug, Default)]
struct Asked {
    users: Option<Range>,
    protocol: Option<u8>,
    source_ports: Option<Range>,
    destination_ports: Option<Range>,
}

impl Condition {
    /// Kinds of packets to ask about: of a rule that is inverted, one for each of its conditions.
    /// `input` is the interface of arrival, absent for what the host sends. None where all packets
    /// are the same to the rule, or where it takes none of the fabric.
    pub(super) fn all_of(rule: &RuleEntry, input: Option<&str>) -> Vec<Self> {
        let selector = &rule.selector;
        let is_of_input = match (selector.input.as_deref(), input) {
            (None, _) => true,
            // What the host sends itself comes from `lo`.
            (Some(wanted), None) => wanted == "lo",
            (Some(wanted), Some(input)) => wanted == input,
        };
        // What is forwarded has no output yet.
        let has_output = selector.output.is_none() || input.is_none();
        let Some(asked) = Asked::of(&selector.other) else { return Vec::new() };
        if selector.inverted {
            return asked.opposites();
        }
        if !is_of_input || !has_output {
            return Vec::new();
        }
        let least = |range: Option<Range>| range.map(|(first, _)| first);
        let port = |range| least(range).and_then(|first| u16::try_from(first).ok());
        let condition = Self {
            mark: selector.mark.map(|(mark, mask)| mark & mask).filter(|mark| *mark != 0),
            // One's own sockets have a user; what is forwarded has none.
            user: least(asked.users).filter(|_| input.is_none()),
            protocol: asked.protocol,
            source_port: port(asked.source_ports),
            destination_port: port(asked.destination_ports),
            output: selector.output.clone(),
        };
        // Neither TCP nor UDP: not what storage goes by.
        let is_other = condition.protocol.is_some_and(|protocol| !matches!(protocol, TCP | UDP));
        let is_plain = condition == Self::default();
        if is_plain || is_other { Vec::new() } else { vec![condition] }
    }

    pub(super) fn apply(&self, question: &mut Question) {
        question.user = self.user;
        question.output.clone_from(&self.output);
        if self.output.is_some() {
            question.only_if = Some(OnlyIf::Bound);
        }
        if let Some(mark) = self.mark {
            (question.mark, question.only_if) = (mark, Some(OnlyIf::Marked));
        }
        if self.protocol.is_some() || self.source_port.is_some() || self.destination_port.is_some() {
            question.ports = Some((
                self.protocol.unwrap_or(PORTS.0),
                self.source_port.unwrap_or(PORTS.1),
                self.destination_port.unwrap_or(PORTS.2),
            ));
        }
    }
}

impl Asked {
    fn of(words: &[String]) -> Option<Self> {
        let mut asked = Self::default();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "uidrange" => asked.users = Some(range(words.next()?)?),
                "ipproto" => {
                    asked.protocol = match words.next()? {
                        "tcp" => Some(TCP),
                        "udp" => Some(UDP),
                        number => Some(number.parse().ok()?),
                    }
                }
                "sport" => asked.source_ports = Some(range(words.next()?)?),
                "dport" => asked.destination_ports = Some(range(words.next()?)?),
                "suppress_prefixlength" | "suppress_ifgroup" | "realms" => drop(words.next()),
                // Packets of another type of service, VRF or tunnel are not the fabric's.
                _ => return None,
            }
        }
        Some(asked)
    }

    /// Packets that lack one of the conditions: a rule with `not` takes them.
    fn opposites(&self) -> Vec<Condition> {
        let without = |range: Range| if range.0 > 0 { range.0 - 1 } else { range.1.saturating_add(1) };
        let port = |range: Option<Range>| u16::try_from(without(range?)).ok();
        let protocol = self.protocol.map(|protocol| if protocol == UDP { TCP } else { UDP });
        let all = [
            Condition { user: self.users.map(without), ..Condition::default() },
            Condition { protocol, ..Condition::default() },
            Condition { source_port: port(self.source_ports), ..Condition::default() },
            Condition { destination_port: port(self.destination_ports), ..Condition::default() },
        ];
        let is_usual = |condition: &Condition| {
            *condition == Condition::default()
                || condition.user == Some(USER)
                || condition.protocol == Some(PORTS.0)
        };
        all.into_iter().filter(|condition| !is_usual(condition)).collect()
    }
}

/// `1000-2000`, or one number.
fn range(text: &str) -> Option<Range> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}
