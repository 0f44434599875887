//! Policy rules: their order, and the packets that each selects (`fib_rule_match`,
//! net/core/fib_rules.c).

use clearstream_schema::routing::{
    MAIN_TABLE, RuleAction, RuleEntry, RuleSelector,
    kernel::{AbsentRule, KernelFacts},
};

use super::{Answer, DEFAULT_TABLE, LOCAL_TABLE, Packet, Verdict};

/// Priorities of the kernel's own rules (fib_default_rules_init).
const MAIN_PRIORITY: u32 = 32_766;
pub(super) const DEFAULT_PRIORITY: u32 = 32_767;
/// Priority of the rule that the kernel makes with the first VRF (`fib_default_rule_l3mdev`).
const VRF_PRIORITY: u32 = 1000;
/// Condition of that rule.
const VRF: &str = "l3mdev";

/// What rules may ask of a packet beside its addresses, mark and interface of arrival;
/// what is absent is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kind<'a> {
    /// User whose socket sends it.
    pub user: Option<u32>,
    /// Protocol number, 6 for TCP.
    pub protocol: Option<u8>,
    /// Source and destination port.
    pub ports: Option<(u16, u16)>,
    /// Interface that its socket is bound to.
    pub output: Option<&'a str>,
}

#[derive(Debug)]
pub(super) struct Rule<'a> {
    pub(super) priority: u32,
    pub(super) ipv6: bool,
    pub(super) entry: Option<&'a RuleEntry>,
    pub(super) action: Act<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Act<'a> {
    Table(u32),
    /// That of the packet's VRF.
    VrfTable,
    Other(&'a str),
    /// One of the kernel's own that is gone.
    Absent,
}

/// Whether a rule selects a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selection {
    Taken,
    Passed,
    /// It depends on this.
    Unknown(String),
}

impl Rule<'_> {
    /// Whether it passes over what its table has: `suppress_prefixlength` leaves wide routes
    /// to later rules, refusals excepted (`fib4_rule_suppress`).
    pub(super) fn suppresses(&self, answer: &Answer<'_>) -> bool {
        let conditions = self.entry.map_or(&[][..], |entry| &entry.selector.other);
        let length = conditions.iter().skip_while(|word| *word != SUPPRESS_LENGTH).nth(1);
        let length: Option<u8> = length.and_then(|length| length.parse().ok());
        !matches!(answer.verdict, Verdict::Refused(_))
            && length.is_some_and(|length| answer.matched.length <= length)
    }
}

const SUPPRESS_LENGTH: &str = "suppress_prefixlength";

/// Whether a selector takes a packet.
pub(super) fn selection(
    selector: &RuleSelector,
    packet: &Packet<'_>,
    kind: &Kind<'_>,
    is_in_vrf: bool,
) -> Selection {
    let answer = match selects(selector, packet, kind) {
        false => Selection::Passed,
        true => conditions(&selector.other, packet, kind, is_in_vrf),
    };
    match answer {
        Selection::Taken if selector.inverted => Selection::Passed,
        Selection::Passed if selector.inverted => Selection::Taken,
        answer => answer,
    }
}

fn selects(selector: &RuleSelector, packet: &Packet<'_>, kind: &Kind<'_>) -> bool {
    let from = selector.from.is_none_or(|from| match packet.source {
        Some(source) => from.contains(source),
        None => from.length == 0,
    });
    let to = selector.to.is_none_or(|to| to.contains(packet.destination));
    let mark = selector.mark.is_none_or(|(mark, mask)| packet.mark & mask == mark & mask);
    let input = selector.input.as_deref().is_none_or(|input| match packet.input {
        Some(interface) => interface == input,
        // What the host sends itself comes from `lo`.
        None => input == "lo",
    });
    let output = selector.output.as_deref().is_none_or(|output| kind.output == Some(output));
    from && to && mark && input && output
}

/// The other conditions of a selector, as words of `ip rule`.
fn conditions(words: &[String], packet: &Packet<'_>, kind: &Kind<'_>, is_in_vrf: bool) -> Selection {
    let mut words = words.iter().map(String::as_str);
    let mut answer = Selection::Taken;
    while let Some(name) = words.next() {
        let holds = match name {
            SUPPRESS_LENGTH | "realms" => {
                words.next();
                Some(true)
            }
            // It leaves routes by interfaces of a group to later rules, and which are of it is not known.
            "suppress_ifgroup" => {
                words.next();
                None
            }
            "uidrange" => within(words.next(), kind.user),
            "ipproto" => protocol(words.next(), kind.protocol),
            "sport" => within(words.next(), kind.ports.map(|(source, _)| source.into())),
            "dport" => within(words.next(), kind.ports.map(|(_, destination)| destination.into())),
            // Packets are taken for ones of the usual type of service, outside of tunnels.
            "tos" | "dsfield" | "dscp" | "tun_id" => {
                words.next();
                Some(false)
            }
            // What is not bound to a VRF, nor arrives by one (l3mdev_fib_rule_match).
            VRF if is_in_vrf => Some(true),
            VRF if packet.input.is_none() && kind.output.is_none() => Some(false),
            _ => None,
        };
        match holds {
            Some(true) => {}
            Some(false) => return Selection::Passed,
            None => answer = Selection::Unknown(name.to_owned()),
        }
    }
    answer
}

/// `1000-2000`, or one number; `None` where it cannot be told.
fn within(range: Option<&str>, value: Option<u32>) -> Option<bool> {
    let range = range?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    value.map(|value| (first..=last).contains(&value))
}

fn protocol(name: Option<&str>, value: Option<u8>) -> Option<bool> {
    let number = match name? {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "ipv6-icmp" | "icmpv6" => 58,
        number => number.parse().ok()?,
    };
    value.map(|value| value == number)
}

/// The priorities that rules get, in their order: one without gets one below that of the second rule of its family that
/// is there, the first being the kernel's own of priority 0 (fib_default_rule_pref, net/core/fib_rules.c). A later one
/// without priority so comes first.
pub fn priorities(rules: &[RuleEntry]) -> Vec<u32> {
    // At the start the second rule is that of the main table.
    let mut lowest = [MAIN_PRIORITY; 2];
    let of_rule = |rule: &RuleEntry| {
        let lowest = &mut lowest[usize::from(rule.ipv6)];
        let priority = rule.priority.unwrap_or_else(|| lowest.saturating_sub(1));
        *lowest = priority.min(*lowest);
        priority
    };
    rules.iter().map(of_rule).collect()
}

/// The rules of the files and the kernel's, in order.
///
/// Of VRFs in files that set none (`has_vrfs`), the kernel makes the rule.
pub(super) fn all_rules<'a>(rules: &'a [RuleEntry], kernel: &KernelFacts, has_vrfs: bool) -> Vec<Rule<'a>> {
    let mut all: Vec<Rule<'_>> = Vec::with_capacity(rules.len() + 6);
    let own = [(0, LOCAL_TABLE), (MAIN_PRIORITY, MAIN_TABLE), (DEFAULT_PRIORITY, DEFAULT_TABLE)];
    for ipv6 in [false, true] {
        for (priority, table) in own {
            // IPv6 has no rule for a default table.
            if !ipv6 || table != DEFAULT_TABLE {
                let is_absent = kernel.absent_rules.contains(&AbsentRule { priority, ipv6 });
                let action = if is_absent { Act::Absent } else { Act::Table(table) };
                all.push(Rule { priority, ipv6, entry: None, action });
            }
        }
        if has_vrfs {
            all.push(Rule { priority: VRF_PRIORITY, ipv6, entry: None, action: Act::VrfTable });
        }
    }
    for (rule, priority) in rules.iter().zip(priorities(rules)) {
        let action = match &rule.action {
            RuleAction::Table(number) => Act::Table(*number),
            RuleAction::Other(other) => Act::Other(other),
        };
        all.push(Rule { priority, ipv6: rule.ipv6, entry: Some(rule), action });
    }
    all.sort_by_key(|rule| rule.priority);
    all
}

/// Whether a rule leads to the table of the packet's VRF.
pub(super) fn is_of_vrf(rule: &Rule<'_>) -> bool {
    let is_it = |entry: &RuleEntry| entry.selector.other.iter().any(|word| word == VRF);
    matches!(rule.action, Act::VrfTable) || rule.entry.is_some_and(is_it)
}
