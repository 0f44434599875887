//! Reads the arguments of `ip route`, `ip rule` and `ip nexthop`, as they stand in
//! scripts, batches, ifcfg files and in the output of `ip`. Their order is free, as
//! in iproute2. They are written by `crate::routes::ip_arguments`.

mod nexthop;
mod route;
mod rule;

pub(crate) use nexthop::nexthop;
pub(crate) use route::{TYPES, route, type_by_number};
pub(crate) use rule::{open_rule, rarer, rule};

use std::{collections::BTreeMap, net::IpAddr};

use clearstream_schema::routing::Place;

use super::{
    gathering::{Gathering, place},
    names::Names,
    values,
};

/// A token and its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: u32,
}

/// Why arguments are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParseError(pub(crate) String);

/// What arguments leave to the file that they stand in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    /// File, for places.
    pub(crate) file: &'a str,
    /// Names of tables and protocols.
    pub(crate) names: &'a Names,
    /// Tables of VRFs by name.
    pub(crate) vrfs: &'a BTreeMap<String, u32>,
    /// Family, where an option or the file's name states it.
    pub(crate) ipv6: Option<bool>,
    /// Interface of the file, for arguments without interface.
    pub(crate) device: Option<&'a str>,
}

impl<'a> Context<'a> {
    /// The arguments of a line of a file about an interface.
    pub(crate) fn of(file: &'a str, gathering: &'a Gathering) -> Self {
        Self { file, names: &gathering.names, vrfs: &gathering.vrfs, ipv6: None, device: None }
    }

    fn place(&self, line: u32) -> Place {
        place(self.file, line)
    }
}

/// The value of arguments, and the options that it has no field for, with their lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parsed<T> {
    pub(crate) value: T,
    pub(crate) left_out: Vec<(u32, String)>,
}

/// Position in a list of tokens.
struct Cursor<'a, 't> {
    tokens: &'t [Token<'a>],
    at: usize,
}

impl<'a, 't> Cursor<'a, 't> {
    fn new(tokens: &'t [Token<'a>]) -> Self {
        Self { tokens, at: 0 }
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.at).copied();
        self.at += 1;
        token
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    /// The token after `name`.
    fn value(&mut self, name: &str) -> Result<Token<'a>, ParseError> {
        self.next().ok_or_else(|| ParseError(format!("a value is missing behind \"{name}\"")))
    }

    /// The token after `name`, parsed by `read`.
    fn read<T>(
        &mut self,
        name: &str,
        what: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ParseError> {
        let token = self.value(name)?;
        read(token.text).ok_or_else(|| ParseError(unfit(name, token.text, what)))
    }

    /// The gateway after `via`; its family may be named, `via inet6 ADDRESS`.
    fn gateway(&mut self) -> Result<IpAddr, ParseError> {
        if self.peek().is_some_and(|token| matches!(token.text, "inet" | "inet6")) {
            self.next();
        }
        self.read("via", "address of a gateway", values::address)
    }

    fn table(&mut self, name: &str, context: Context<'_>) -> Result<u32, ParseError> {
        self.read(name, "table by number or known name", |token| context.names.table(token))
    }

    fn protocol(&mut self, name: &str, context: Context<'_>) -> Result<u8, ParseError> {
        self.read(name, "protocol by number or known name", |token| context.names.protocol(token))
    }
}

fn unfit(name: &str, token: &str, what: &str) -> String {
    if token.contains('$') {
        return format!("\"{name} {token}\": the shell fills this in; read the captured host instead");
    }
    format!("\"{name} {token}\" is no {what}")
}

/// A mark with or without mask: `0x1/0xff`.
pub(crate) fn mark(token: &str) -> Option<(u32, u32)> {
    let (mark, mask) = token.split_once('/').unwrap_or((token, "0xffffffff"));
    Some((values::number(mark)?, values::number(mask)?))
}

/// Splits a line into tokens; a comment ends it.
pub(crate) fn split(text: &str, line: u32) -> Vec<Token<'_>> {
    let tokens = text.split_whitespace().take_while(|token| !token.starts_with('#'));
    tokens.map(|text| Token { text: text.trim_matches(['"', '\'']), line }).collect()
}
