//! One rule of nf_tables: what its expressions load, compare and do.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use clearstream_schema::{prefix::Prefix, routing::SourceTranslation};

use super::text;
use crate::{names::Names, packet_queue::message::attributes};

const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
/// `IFNAMSIZ`: a whole name is compared with its zeros.
const NAME_BYTES: usize = 16;

/// Classification of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// It replaces source addresses.
    Translates(SourceTranslation),
    /// Its verdict may exclude packets from later rules.
    Decides,
    /// Neither.
    Other,
}

/// Content of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loaded {
    OutputName,
    OutputIndex,
    Family,
    /// The source address or a prefix of it.
    Source {
        length: u8,
    },
    Address(IpAddr),
}

/// State of the evaluation: registers and results so far.
struct Reading<'n> {
    names: &'n Names,
    registers: BTreeMap<u32, Loaded>,
    translation: SourceTranslation,
    does: bool,
    decides: bool,
}

/// Evaluates the expressions of a rule (`NFTA_RULE_EXPRESSIONS`) of a family.
pub(super) fn read(expressions: &[u8], family: u8, names: &Names) -> Rule {
    // NFTA_EXPR_NAME and NFTA_EXPR_DATA.
    const NAME: u16 = 1;
    const DATA: u16 = 2;
    let ipv6 = match family {
        NFPROTO_IPV4 => Some(false),
        NFPROTO_IPV6 => Some(true),
        _ => None,
    };
    let translation = SourceTranslation { ipv6, ..SourceTranslation::default() };
    let mut reading = Reading { names, registers: BTreeMap::new(), translation, does: false, decides: false };
    for (_, element) in attributes(expressions) {
        let element: BTreeMap<u16, &[u8]> = attributes(element).collect();
        let name = element.get(&NAME).map(|name| text(name)).unwrap_or_default();
        let data = element.get(&DATA).map(|data| attributes(data).collect()).unwrap_or_default();
        reading.expression(&name, &data);
    }
    match (reading.does, reading.decides) {
        (true, _) => Rule::Translates(reading.translation),
        (false, true) => Rule::Decides,
        (false, false) => Rule::Other,
    }
}

/// Whether a rule sets the mark of packets: `meta mark set`, or a target of iptables that does.
pub(super) fn sets_mark(expressions: &[u8]) -> bool {
    // NFTA_EXPR_NAME, NFTA_EXPR_DATA; NFTA_META_KEY, NFTA_META_SREG; NFT_META_MARK.
    const NAME: u16 = 1;
    const DATA: u16 = 2;
    const KEY: u16 = 2;
    const SOURCE_REGISTER: u16 = 3;
    const MARK: u32 = 3;
    attributes(expressions).any(|(_, element)| {
        let element: BTreeMap<u16, &[u8]> = attributes(element).collect();
        let name = element.get(&NAME).map(|name| text(name)).unwrap_or_default();
        let data: Data<'_> = element.get(&DATA).map(|data| attributes(data).collect()).unwrap_or_default();
        match name.as_str() {
            "meta" => {
                data.contains_key(&SOURCE_REGISTER)
                    && data.get(&KEY).is_some_and(|key| *key == MARK.to_be_bytes())
            }
            "target" => {
                let target = data.get(&1).map(|name| text(name)).unwrap_or_default();
                matches!(target.as_str(), "MARK" | "CONNMARK" | "TPROXY")
            }
            _ => false,
        }
    })
}

type Data<'d> = BTreeMap<u16, &'d [u8]>;

impl Reading<'_> {
    fn expression(&mut self, name: &str, data: &Data<'_>) {
        match name {
            "meta" => self.meta(data),
            "payload" => self.payload(data),
            "bitwise" => self.bitwise(data),
            "cmp" => self.compare(data),
            "immediate" => self.immediate(data),
            "masq" => self.does = true,
            "nat" => self.nat(data),
            // NFTA_TARGET_NAME, NFTA_MATCH_NAME.
            "target" => match data.get(&1).map(|name| text(name)).as_deref() {
                Some("MASQUERADE" | "SNAT" | "NETMAP") => self.does = true,
                Some("LOG" | "NFLOG") | None => {}
                Some(_) => self.decides = true,
            },
            "match" if data.get(&1).is_some_and(|name| text(name) == "comment") => {}
            "counter" | "log" => {}
            _ => self.translation.is_conditional = true,
        }
    }

    /// NFTA_META_DREG, _KEY.
    fn meta(&mut self, data: &Data<'_>) {
        const OUTPUT_INDEX: u32 = 5;
        const OUTPUT_NAME: u32 = 7;
        const FAMILY: u32 = 15;
        let loaded = match number(data, 2) {
            Some(OUTPUT_NAME) => Some(Loaded::OutputName),
            Some(OUTPUT_INDEX) => Some(Loaded::OutputIndex),
            Some(FAMILY) => Some(Loaded::Family),
            _ => None,
        };
        self.load(number(data, 1), loaded);
    }

    /// NFTA_PAYLOAD_DREG, _BASE, _OFFSET, _LEN: a prefix of whole octets is loaded directly, any other one
    /// goes through `bitwise`.
    fn payload(&mut self, data: &Data<'_>) {
        const NETWORK_HEADER: u32 = 1;
        let [base, offset, bytes] = [2, 3, 4].map(|kind| number(data, kind));
        let (wanted, most) = match self.translation.ipv6 {
            Some(true) => (8, 16),
            Some(false) => (12, 4),
            None => return self.load(number(data, 1), None),
        };
        let is_source = base == Some(NETWORK_HEADER) && offset == Some(wanted);
        let length =
            bytes.filter(|bytes| is_source && *bytes <= most).and_then(|it| u8::try_from(it * 8).ok());
        self.load(number(data, 1), length.map(|length| Loaded::Source { length }));
    }

    /// NFTA_BITWISE_SREG, _DREG, _MASK, _XOR: the mask of a prefix.
    fn bitwise(&mut self, data: &Data<'_>) {
        let loaded = number(data, 1).and_then(|register| self.registers.get(&register).copied());
        let mask = data.get(&4).and_then(|mask| value(mask)).unwrap_or_default();
        let is_plain = data.get(&5).and_then(|it| value(it)).is_none_or(|xor| xor.iter().all(|it| *it == 0));
        let length: u32 = mask.iter().map(|octet| octet.count_ones()).sum();
        let is_prefix = length == leading_ones(mask);
        let masked = match (loaded, u8::try_from(length)) {
            (Some(Loaded::Source { .. }), Ok(length)) if is_plain && is_prefix => {
                Some(Loaded::Source { length })
            }
            _ => None,
        };
        self.load(number(data, 2), masked);
    }

    /// NFTA_CMP_SREG, _OP, _DATA.
    fn compare(&mut self, data: &Data<'_>) {
        const EQUAL: u32 = 0;
        let loaded = number(data, 1).and_then(|register| self.registers.get(&register).copied());
        let wanted = data.get(&3).and_then(|wanted| value(wanted)).unwrap_or_default();
        let understood = match loaded.filter(|_| number(data, 2) == Some(EQUAL)) {
            Some(Loaded::OutputName) if wanted.len() == NAME_BYTES => {
                self.translation.output = Some(text(wanted));
                true
            }
            Some(Loaded::OutputIndex) => wanted.try_into().is_ok_and(|index| {
                self.translation.output = Some(self.names.of(u32::from_ne_bytes(index)));
                true
            }),
            Some(Loaded::Family) => match wanted {
                [NFPROTO_IPV4] => self.family(false),
                [NFPROTO_IPV6] => self.family(true),
                _ => false,
            },
            Some(Loaded::Source { length }) => {
                self.translation.from = address(wanted, self.translation.ipv6)
                    .map(|address| Prefix { address, length }.network());
                self.translation.from.is_some()
            }
            _ => false,
        };
        self.translation.is_conditional |= !understood;
    }

    fn family(&mut self, ipv6: bool) -> bool {
        self.translation.ipv6 = Some(ipv6);
        true
    }

    /// NFTA_IMMEDIATE_DREG, _DATA with NFTA_DATA_VALUE or NFTA_DATA_VERDICT.
    fn immediate(&mut self, data: &Data<'_>) {
        const VERDICT: u16 = 2;
        let given = data.get(&2).copied().unwrap_or_default();
        self.decides |= attributes(given).any(|(kind, _)| kind == VERDICT);
        let loaded = value(given).filter(|value| matches!(value.len(), 4 | 16));
        let loaded = loaded.and_then(|value| address(value, Some(value.len() == 16))).map(Loaded::Address);
        self.load(number(data, 1), loaded);
    }

    /// NFTA_NAT_TYPE, _FAMILY, _REG_ADDR_MIN.
    fn nat(&mut self, data: &Data<'_>) {
        const SOURCE: u32 = 0;
        if number(data, 1) != Some(SOURCE) {
            self.decides = true;
            return;
        }
        self.does = true;
        let loaded = number(data, 3).and_then(|register| self.registers.get(&register).copied());
        if let Some(Loaded::Address(to)) = loaded {
            (self.translation.to, self.translation.ipv6) = (Some(to), Some(to.is_ipv6()));
        }
    }

    fn load(&mut self, register: Option<u32>, loaded: Option<Loaded>) {
        let Some(register) = register else { return };
        match loaded {
            Some(loaded) => drop(self.registers.insert(register, loaded)),
            None => drop(self.registers.remove(&register)),
        }
    }
}

/// A 32-bit number, in network byte order.
fn number(data: &Data<'_>, kind: u16) -> Option<u32> {
    data.get(&kind)?.get(..4)?.try_into().ok().map(u32::from_be_bytes)
}

/// `NFTA_DATA_VALUE`.
fn value(data: &[u8]) -> Option<&[u8]> {
    attributes(data).find(|(kind, _)| *kind == 1).map(|(_, value)| value)
}

fn leading_ones(mask: &[u8]) -> u32 {
    let mut count = 0;
    for octet in mask {
        count += octet.leading_ones();
        if *octet != u8::MAX {
            break;
        }
    }
    count
}

/// An address whose last octets may be missing.
fn address(octets: &[u8], ipv6: Option<bool>) -> Option<IpAddr> {
    fn filled<const N: usize>(octets: &[u8]) -> Option<[u8; N]> {
        let mut whole = [0; N];
        whole.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(whole)
    }
    match ipv6? {
        true => filled(octets).map(|octets| IpAddr::V6(Ipv6Addr::from(octets))),
        false => filled(octets).map(|octets| IpAddr::V4(Ipv4Addr::from(octets))),
    }
}
