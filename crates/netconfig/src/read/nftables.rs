//! Routing in nftables files: connection marks, `iifname "ib1" ct state
//! new ether saddr 02:00:00:00:00:01 ct mark set 7001 comment "gw1"`, and rules
//! that replace sources, `oifname "eth0" masquerade` (nft(8), NAT STATEMENTS).

use clearstream_schema::{
    prefix::Prefix,
    routing::{ConnectionMark, SourceTranslation},
};

use super::{Source, gathering::Gathering, values};

pub(crate) fn read(source: &Source, gathering: &mut Gathering) {
    lines(&source.path, 1, &source.text, gathering);
}

/// Reads statements of a file from a line on.
pub(crate) fn lines(file: &str, first: u32, text: &str, gathering: &mut Gathering) {
    gathering.understood();
    for (line, text) in (first..).zip(text.lines()) {
        let text = text.trim();
        marks_set(text, gathering);
        if let Some(translation) = translation(text) {
            gathering.routing.source_translations.get_or_insert_default().push(translation);
            continue;
        }
        if text.starts_with('#') || !text.contains("ct mark set") {
            // Statements that restore the marks on output, and the tables and chains
            // around them, follow from the marks.
            continue;
        }
        match mark(text) {
            Some(mark) => gathering.routing.connection_marks.push(mark),
            None => gathering.unread(
                file,
                line,
                text,
                "not a mark by interface and link address: iifname \"ib1\" ... ether saddr ADDRESS ct mark set NUMBER",
            ),
        }
    }
}

/// Marks of packets that a rule sets: `meta mark set 0x1`.
fn marks_set(text: &str, gathering: &mut Gathering) {
    let mut tokens = text.split_whitespace();
    if text.starts_with('#') || !tokens.by_ref().any(|token| token == "mark") {
        return;
    }
    gathering.facts().has_firewall = true;
    if let (Some("set"), Some(value)) = (tokens.next(), tokens.next()) {
        let mark: Option<u32> = values::number(value.trim_end_matches([';', '}']));
        gathering.facts().marks.extend(mark);
    }
}

fn mark(text: &str) -> Option<ConnectionMark> {
    let tokens: Vec<&str> = text.split_whitespace().map(|token| token.trim_matches(['"', ';'])).collect();
    let behind = |name: &[&str]| {
        let at = tokens.windows(name.len()).position(|window| window == name)?;
        tokens.get(at + name.len()).copied()
    };
    let interface = behind(&["iifname"]).or_else(|| behind(&["iif"]))?;
    let link_address = values::link_address(behind(&["ether", "saddr"])?)?;
    let mark = values::number(behind(&["ct", "mark", "set"])?)?;
    let gateway = behind(&["comment"]).unwrap_or_default();
    Some(ConnectionMark { interface: interface.to_owned(), link_address, gateway: gateway.to_owned(), mark })
}

/// A rule that masquerades or does SNAT. What it depends on beyond the source and
/// the output interface makes it conditional; verdicts of earlier rules are
/// ignored.
fn translation(text: &str) -> Option<SourceTranslation> {
    let tokens: Vec<&str> = text.split_whitespace().map(|token| token.trim_end_matches(';')).collect();
    let at = tokens.iter().position(|token| matches!(*token, "masquerade" | "snat"))?;
    if text.starts_with('#') {
        return None;
    }
    let mut found = SourceTranslation::default();
    let mut rest = tokens.get(..at).unwrap_or_default();
    while let [first, tail @ ..] = rest {
        rest = match (*first, tail) {
            ("oifname" | "oif", [name, tail @ ..]) if name.starts_with('"') && !name.contains('*') => {
                found.output = Some(name.trim_matches('"').to_owned());
                tail
            }
            ("ip" | "ip6", ["saddr", source, tail @ ..]) if values::prefix(source).is_some() => {
                (found.from, found.ipv6) = (values::prefix(source), Some(*first == "ip6"));
                tail
            }
            ("counter", tail) => tail,
            (_, tail) => {
                found.is_conditional = true;
                tail
            }
        };
    }
    let given = tokens.iter().skip(at + 1).find_map(|token| values::prefix(token));
    found.to = given.filter(|to| *to == Prefix::host(to.address)).map(|to| to.address);
    Some(found)
}
