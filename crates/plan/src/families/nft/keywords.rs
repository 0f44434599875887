//! What a table of nft may be made of where no module may be loaded for it
//! (`nft_request_module`).

use crate::Fault;

/// Keywords of nft(8) that nf_tables implements itself since Linux 5.2, or that
/// nft_ct implements: they match, mark, accept and drop. Others load modules
/// (`nat`, `fib`, `socket`, `tproxy`, `queue`, `log`, `limit` ...).
const TABLE_KEYWORDS: [&str; 43] = [
    "accept",
    "chain",
    "comment",
    "ct",
    "daddr",
    "direction",
    "dport",
    "drop",
    "established",
    "ether",
    "filter",
    "forward",
    "hook",
    "iif",
    "iifname",
    "input",
    "ip",
    "ip6",
    "l4proto",
    "mangle",
    "mark",
    "meta",
    "new",
    "oif",
    "oifname",
    "original",
    "output",
    "policy",
    "postrouting",
    "prerouting",
    "priority",
    "raw",
    "related",
    "reply",
    "return",
    "route",
    "saddr",
    "set",
    "sport",
    "state",
    "tcp",
    "type",
    "udp",
];

/// Fails for a content that does more than match, mark, accept and drop.
pub(super) fn check(text: &str) -> Result<Keywords<'_>, Fault> {
    let keywords = Keywords(table_keywords(text));
    let refused = |what: &str| {
        let reason = format!("over TLS a table only matches, marks, accepts and drops: {what}");
        Err(Fault::NotOverTls { reason })
    };
    if let Some(keyword) = keywords.0.iter().find(|keyword| !TABLE_KEYWORDS.contains(keyword)) {
        return refused(&format!("not \"{keyword}\""));
    }
    // Setting a field of a packet redirects it (nft(8), PAYLOAD STATEMENT).
    let mut pairs = keywords.0.iter().zip(keywords.0.iter().skip(1));
    if pairs.any(|(before, word)| *word == "set" && *before != "mark") {
        return refused("it sets marks alone");
    }
    Ok(keywords)
}

/// Keywords of a table.
pub(super) struct Keywords<'a>(Vec<&'a str>);

impl Keywords<'_> {
    /// Whether one of them is this one.
    pub(super) fn has(&self, keyword: &str) -> bool {
        self.0.contains(&keyword)
    }
}

/// Keywords of a table, without names of chains and quoted strings.
fn table_keywords(text: &str) -> Vec<&str> {
    let plain = text.split('"').step_by(2);
    let is_between = |letter: char| letter.is_whitespace() || "{};,=!<>&|()".contains(letter);
    let keywords = plain.flat_map(|part| part.split(is_between)).filter(|keyword| !keyword.is_empty());
    let mut is_name = false;
    keywords
        .filter(|keyword| {
            let is_chain = std::mem::replace(&mut is_name, *keyword == "chain");
            // Numbers and addresses of links and hosts.
            let is_number = keyword
                .starts_with(|first: char| first.is_ascii_digit() || "-+.:".contains(first))
                || keyword.contains(':');
            !is_chain && !is_number
        })
        .collect()
}
