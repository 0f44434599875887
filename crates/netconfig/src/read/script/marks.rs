//! Commands of a firewall that set marks of packets: `nft`, `iptables`, `wg`.

use crate::read::{gathering::Gathering, ip_arguments::Token, values};

/// Whether a program sets rules of a firewall.
pub(super) fn is_firewall(program: &str) -> bool {
    matches!(
        super::last_part(program),
        "nft" | "iptables" | "ip6tables" | "iptables-restore" | "ip6tables-restore" | "ebtables" | "ipset"
    )
}

/// Reads the marks that a command sets: `... meta mark set 1`, `-j MARK --set-mark 0x1/0xff`,
/// `-j CONNMARK --restore-mark`, `wg set wg0 fwmark 51820`.
pub(super) fn read(tokens: &[Token<'_>], gathering: &mut Gathering) {
    let values = tokens.iter().zip(tokens.iter().skip(1)).filter_map(|(key, value)| {
        let sets = match key.text {
            "--set-mark" | "--set-xmark" | "--or-mark" | "fwmark" => true,
            "set" => tokens.iter().any(|token| token.text == "mark"),
            _ => false,
        };
        sets.then_some(value.text)
    });
    for value in values {
        let value = value.split('/').next().unwrap_or(value).trim_end_matches(['\'', '"', ';', '}']);
        gathering.facts().has_firewall = true;
        if let Some(mark) = values::number(value) {
            gathering.facts().marks.insert(mark);
        }
    }
    if tokens.iter().any(|token| matches!(token.text, "--restore-mark" | "CONNMARK" | "MARK")) {
        gathering.facts().has_firewall = true;
    }
}
