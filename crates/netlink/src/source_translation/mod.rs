//! Source NAT rules of nf_tables for forwarded packets: `masquerade`, `snat`, and the targets of the same
//! names created by `iptables-nft`.
//!
//! Source: linux/netfilter/nf_tables.h, nft(8), NAT STATEMENTS.

mod expressions;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::AsFd as _,
};

use clearstream_schema::routing::SourceTranslation;
use rustix::net::{RecvFlags, recv};

use self::expressions::{Rule, read, sets_mark};
use crate::{
    RouteSocket,
    names::Names,
    packet_queue::{
        message::{Batch, attributes, split_message},
        open_socket,
    },
    refusal::Refusal,
};

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
/// The list changed while it was sent.
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_DONE: u16 = 3;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFT_MSG_GETCHAIN: u16 = 4;
const NFT_MSG_GETRULE: u16 = 7;
/// `struct nlmsghdr` and `struct nfgenmsg`.
const HEADERS: usize = 16 + 4;
/// `NF_INET_POST_ROUTING`.
const POST_ROUTING: u32 = 4;
/// The kernel sends lists in parts of at most 32 KiB (netlink(7)).
const PART_BYTES: usize = 1 << 16;
/// Maximum attempts at a list that changes while it is read.
const MOST_ATTEMPTS: usize = 5;

/// Family and name.
type Table = (u8, String);

/// Masquerade and SNAT of the calling thread's network namespace, in no particular order. A kernel without
/// tables has none.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN` in the namespace.
pub fn source_translations() -> io::Result<Vec<SourceTranslation>> {
    let chains = nat_chains()?;
    if chains.is_empty() {
        return Ok(Vec::new());
    }
    let names = RouteSocket::open().and_then(|mut socket| socket.names()).map_err(io::Error::other)?;
    let rules = list(NFT_MSG_GETRULE)?;
    Ok(translations(&chains, &rules, &names))
}

/// Whether a rule of nf_tables sets packets' marks, in another table than `own`; those of `iptables-nft` are
/// among them.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN` in the namespace.
pub fn marks_are_set(own: &str) -> io::Result<bool> {
    const TABLE: u16 = 1;
    const EXPRESSIONS: u16 = 4;
    let sets = |message: &Message| {
        let found: BTreeMap<u16, &[u8]> = attributes(&message.attributes).collect();
        found.get(&TABLE).is_none_or(|table| text(table) != own)
            && found.get(&EXPRESSIONS).is_some_and(|expressions| sets_mark(expressions))
    };
    Ok(list(NFT_MSG_GETRULE)?.iter().any(sets))
}

/// Chains of type `nat` after the routing decision, by table.
fn nat_chains() -> io::Result<BTreeMap<Table, BTreeSet<String>>> {
    // NFTA_CHAIN_TABLE, _NAME, _HOOK with NFTA_HOOK_HOOKNUM, _TYPE.
    const TABLE: u16 = 1;
    const NAME: u16 = 3;
    const HOOK: u16 = 4;
    const HOOK_NUMBER: u16 = 1;
    const TYPE: u16 = 7;
    let mut chains: BTreeMap<Table, BTreeSet<String>> = BTreeMap::new();
    for message in list(NFT_MSG_GETCHAIN)? {
        let found: BTreeMap<u16, &[u8]> = attributes(&message.attributes).collect();
        let hook = found.get(&HOOK).and_then(|hook| attributes(hook).find(|(kind, _)| *kind == HOOK_NUMBER));
        let is_nat = found.get(&TYPE).is_some_and(|kind| text(kind) == "nat");
        if let (Some((_, number)), true, Some(table), Some(name)) =
            (hook, is_nat, found.get(&TABLE), found.get(&NAME))
            && number == POST_ROUTING.to_be_bytes()
        {
            chains.entry((message.family, text(table))).or_default().insert(text(name));
        }
    }
    Ok(chains)
}

fn translations(
    chains: &BTreeMap<Table, BTreeSet<String>>,
    rules: &[Message],
    names: &Names,
) -> Vec<SourceTranslation> {
    // NFTA_RULE_TABLE, _CHAIN, _EXPRESSIONS.
    const TABLE: u16 = 1;
    const CHAIN: u16 = 2;
    const EXPRESSIONS: u16 = 4;
    let mut translations = Vec::new();
    // Chains in which an earlier rule may have decided already.
    let mut decided: BTreeSet<(Table, String)> = BTreeSet::new();
    for message in rules {
        let found: BTreeMap<u16, &[u8]> = attributes(&message.attributes).collect();
        let (Some(table), Some(chain)) = (found.get(&TABLE), found.get(&CHAIN)) else { continue };
        let (table, chain) = ((message.family, text(table)), text(chain));
        let Some(base_chains) = chains.get(&table) else { continue };
        let is_base = base_chains.contains(&chain);
        let place = (table, chain);
        match read(found.get(&EXPRESSIONS).unwrap_or(&&[][..]), message.family, names) {
            Rule::Translates(mut translation) => {
                // Chains reached by a jump are not followed.
                translation.is_conditional |= !is_base || decided.contains(&place);
                translations.push(translation);
            }
            Rule::Decides => drop(decided.insert(place)),
            Rule::Other => {}
        }
    }
    translations
}

/// A message of a dump.
struct Message {
    family: u8,
    attributes: Vec<u8>,
}

/// Dumps all objects of a kind, of all families.
fn list(kind: u16) -> io::Result<Vec<Message>> {
    for _ in 0..MOST_ATTEMPTS {
        if let Some(messages) = list_once(kind)? {
            return Ok(messages);
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// As [`list`]; `None` when it changed meanwhile.
fn list_once(kind: u16) -> io::Result<Option<Vec<Message>>> {
    let socket = open_socket()?;
    let mut batch = Batch::default();
    batch.message((NFNL_SUBSYS_NFTABLES, kind), NLM_F_REQUEST | NLM_F_DUMP, 0, 0, |_| {});
    batch.send(&socket, 0)?;
    let (mut messages, mut is_whole) = (Vec::new(), true);
    let mut buffer = vec![0; PART_BYTES];
    loop {
        let (length, _) = recv(socket.as_fd(), &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..length];
        while let Some((message, after)) = split_message(rest) {
            rest = after;
            let number = |at: usize| message.get(at..at + 2).and_then(|two| two.try_into().ok());
            let [kind, flags] = [4, 6].map(|at| number(at).map_or(0, u16::from_ne_bytes));
            is_whole &= flags & NLM_F_DUMP_INTR == 0;
            if let Some(end) = Refusal::read(message, &[]) {
                end?;
                if kind == NLMSG_DONE {
                    return Ok(is_whole.then_some(messages));
                }
            } else if let (Some(family), Some(body)) = (message.get(16), message.get(HEADERS..)) {
                messages.push(Message { family: *family, attributes: body.to_owned() });
            }
        }
    }
}

/// A text with or without terminating zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
