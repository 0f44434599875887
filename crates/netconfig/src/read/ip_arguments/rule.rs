//! `ip rule add ...` and the lines of `ip rule show` (ip-rule(8)).

use clearstream_schema::{
    prefix::Prefix,
    routing::{MAIN_TABLE, Place, RuleAction, RuleEntry, RuleSelector},
};

use super::{Context, Cursor, ParseError, Parsed, Token, mark, unfit};
use crate::read::{gathering::Gathering, statements::joined, values};

/// Reads the arguments of `ip rule add`, or a line of `ip rule show`.
/// Returns `None` for the kernel's own three rules.
pub(crate) fn rule(
    tokens: &[Token<'_>],
    context: Context<'_>,
) -> Result<Option<Parsed<RuleEntry>>, ParseError> {
    let mut parts = Parts::default();
    let mut tokens = tokens;
    // `7001:  from all lookup 7001`
    let numbered = tokens.split_first().and_then(|(first, rest)| Some((first.text.strip_suffix(':')?, rest)));
    if let Some((number, rest)) = numbered {
        parts.priority =
            Some(values::number(number).ok_or_else(|| ParseError(unfit("", number, "priority")))?);
        tokens = rest;
    }
    let line = tokens.first().map_or(1, |token| token.line);
    let mut cursor = Cursor::new(tokens);
    while let Some(token) = cursor.next() {
        parts.argument(token, &mut cursor, context)?;
    }
    let action = match (parts.table, parts.other) {
        (_, Some(other)) => RuleAction::Other(other),
        (Some(table), None) => RuleAction::Table(table),
        // ip-rule(8) takes the main table where none is named (iproute2, iprule.c).
        (None, None) => RuleAction::Table(MAIN_TABLE),
    };
    let is_kernels = parts.selector == RuleSelector::default()
        && matches!(
            (parts.priority, &action),
            (Some(0), RuleAction::Table(255))
                | (Some(32766), RuleAction::Table(254))
                | (Some(32767), RuleAction::Table(253))
        );
    if is_kernels {
        return Ok(None);
    }
    let ipv6 = parts.ipv6.or(context.ipv6).unwrap_or(false);
    let value = RuleEntry {
        ipv6,
        priority: parts.priority,
        selector: parts.selector,
        action,
        protocol: parts.protocol,
        place: Some(context.place(line)),
    };
    Ok(Some(Parsed { value, left_out: parts.left_out }))
}

/// Names of arguments that may be shortened, in the order in which iproute2 compares them (iprule.c, `matches`), and
/// what each stands for.
const SHORTENED: [(&str, &str); 12] = [
    ("preference", "preference"),
    ("order", "preference"),
    ("priority", "preference"),
    ("tun_id", "tun_id"),
    ("tos", "tos"),
    ("dsfield", "tos"),
    ("realms", "realms"),
    ("table", "table"),
    ("protocol", "protocol"),
    ("suppress_prefixlength", "suppress_prefixlength"),
    ("suppress_ifgroup", "suppress_ifgroup"),
    ("goto", "goto"),
];

/// An argument by its whole name: `prio` and `pref` are `preference`.
pub(crate) fn full_name(token: &str) -> &str {
    let is_short = |(name, _): &&(&str, &str)| !token.is_empty() && name.starts_with(token);
    // Whole names of others come first: `to`, `type`.
    if matches!(token, "to" | "type" | "oif" | "not" | "from" | "prohibit" | "nop") {
        return token;
    }
    SHORTENED.iter().find(is_short).map_or(token, |(_, name)| name)
}

#[derive(Default)]
struct Parts {
    ipv6: Option<bool>,
    priority: Option<u32>,
    selector: RuleSelector,
    table: Option<u32>,
    other: Option<String>,
    protocol: u8,
    left_out: Vec<(u32, String)>,
}

impl Parts {
    /// Reads one option with its value.
    fn argument(
        &mut self,
        token: Token<'_>,
        cursor: &mut Cursor<'_, '_>,
        context: Context<'_>,
    ) -> Result<(), ParseError> {
        let name = full_name(token.text);
        match name {
            "not" => self.selector.inverted = true,
            "from" => self.selector.from = self.prefix(name, cursor)?,
            "to" => self.selector.to = self.prefix(name, cursor)?,
            "fwmark" => self.selector.mark = Some(cursor.read(name, "mark", mark)?),
            "iif" | "dev" => self.selector.input = Some(cursor.value(name)?.text.to_owned()),
            "oif" => self.selector.output = Some(cursor.value(name)?.text.to_owned()),
            "preference" => {
                self.priority = Some(cursor.read(name, "priority", values::number)?);
            }
            "table" | "lookup" => self.table = Some(cursor.table(name, context)?),
            "protocol" => self.protocol = cursor.protocol(name, context)?,
            "tos"
            | "uidrange"
            | "ipproto"
            | "sport"
            | "dport"
            | "tun_id"
            | "dscp"
            | "flowlabel"
            | "suppress_prefixlength"
            | "sup_pl"
            | "suppress_ifgroup"
            | "sup_group" => {
                let name = match name {
                    "sup_pl" => "suppress_prefixlength",
                    "sup_group" => "suppress_ifgroup",
                    same => same,
                };
                let value = cursor.value(name)?.text;
                self.selector.other.extend(rarer(name, value));
            }
            "l3mdev" => self.selector.other.push(name.to_owned()),
            "realms" => {
                let value = cursor.value(name)?.text;
                self.left_out.push((token.line, format!("{name} {value}")));
            }
            "type" => {
                let kind = cursor.value(name)?;
                self.kind(kind.text)?;
            }
            "goto" => self.other = Some(format!("goto {}", cursor.value(name)?.text)),
            // Written by `ip rule show` behind rules whose target is missing.
            "[detached]" | "[unresolved]" => {}
            other => self.kind(other)?,
        }
        Ok(())
    }

    fn kind(&mut self, token: &str) -> Result<(), ParseError> {
        // `ip -Numeric rule show` prints types as numbers (rtnetlink(7), `rtm_type`).
        let token = match token {
            "6" => "blackhole",
            "7" => "unreachable",
            "8" => "prohibit",
            named => named,
        };
        match token {
            "unicast" => {}
            "blackhole" | "unreachable" | "prohibit" | "nop" => self.other = Some(token.to_owned()),
            _ => return Err(ParseError(unfit("", token, "argument of a rule"))),
        }
        Ok(())
    }

    /// A prefix; the prefix of a whole family selects nothing and sets the family.
    fn prefix(&mut self, name: &str, cursor: &mut Cursor<'_, '_>) -> Result<Option<Prefix>, ParseError> {
        let token = cursor.value(name)?;
        if matches!(token.text, "all" | "any" | "default") {
            return Ok(None);
        }
        let prefix = values::prefix(token.text)
            .ok_or_else(|| ParseError(unfit(name, token.text, "address or prefix")))?;
        self.ipv6 = Some(prefix.address.is_ipv6());
        Ok((prefix.length > 0).then_some(prefix))
    }
}

/// A rarer selector and its value as the live host has them too: protocols by
/// number, ports as ranges.
pub(crate) fn rarer(name: &str, value: &str) -> [String; 2] {
    let is_port = matches!(name, "sport" | "dport") && !value.contains('-');
    let value = match (name, value) {
        // `ip -Numeric rule show` prints `ipproto-6`.
        ("ipproto", value) => match value.strip_prefix("ipproto-").unwrap_or(value) {
            "icmp" => "1",
            "tcp" => "6",
            "udp" => "17",
            "ipv6-icmp" | "icmpv6" => "58",
            "sctp" => "132",
            number => number,
        }
        .to_owned(),
        (_, port) if is_port => format!("{port}-{port}"),
        (_, value) => value.to_owned(),
    };
    [name.to_owned(), value]
}

/// A rule whose arguments are not all understood: it still leads to its table.
pub(crate) fn open_rule(tokens: &[Token<'_>], ipv6: Option<bool>, place: Place, gathering: &mut Gathering) {
    let value = |name: &str| {
        let at = tokens.iter().position(|token| full_name(token.text) == name)?;
        tokens.get(at + 1).map(|token| token.text)
    };
    // Printed, it comes first: `7001:`.
    let printed = || tokens.first().and_then(|token| token.text.strip_suffix(':'));
    let priority = value("preference").or_else(printed).and_then(values::number);
    let table = value("table").or_else(|| value("lookup"));
    gathering.open_rule(place, ipv6.unwrap_or(false), &joined(tokens), table, priority);
}
