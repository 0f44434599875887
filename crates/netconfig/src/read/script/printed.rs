//! What `ip` prints: the prompt above it, which names the table, addresses, and the routes that the kernel makes
//! for them.

use clearstream_schema::prefix::Prefix;

use super::{State, value_of};
use crate::read::{
    gathering::{Gathering, place},
    ip_arguments::Token,
    statements::is_ip,
    values,
};

/// What the last call of `ip ... show` was about; lines below it are its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// Table of the routes that follow; absent where each line names its own.
    pub(super) table: Option<u32>,
    /// The table has a name that was not given.
    pub(super) is_of_unknown_table: bool,
    /// Family of the lines that follow.
    pub(super) ipv6: Option<bool>,
    /// `ip route get`: the answer is no route.
    pub(super) is_lookup: bool,
}

/// The command behind a prompt: `# ip route show table 7`, `$ ip ro`, `user@host:~# ip rule`,
/// `[root@host ~]# ip -6 route`. A `#` alone begins a comment too: behind it only what shows counts.
pub(crate) fn behind_prompt(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (prompt, command) = ["# ", "$ ", "> ", "% "]
        .iter()
        .filter_map(|end| Some((line.find(end)?, end)))
        .min()
        .map(|(at, end)| (&line[..at + end.len()], line[at + end.len()..].trim_start()))?;
    let before = prompt.trim_end().trim_end_matches(['#', '$', '>', '%']);
    let is_plain = before.is_empty();
    let is_named =
        before.contains('@') || before.contains('~') || before.ends_with(']') || before.ends_with(':');
    let command = command.strip_prefix("sudo ").unwrap_or(command);
    let mut words = command.split_whitespace().skip_while(|word| word.starts_with('-'));
    let calls_ip = words.next().is_some_and(is_ip);
    let changes = ["add", "del", "delete", "replace", "change", "append", "flush", "set"];
    let is_shown = !command.split_whitespace().any(|word| changes.contains(&word));
    (calls_ip && (is_plain || is_named) && (is_shown || !prompt.starts_with('#'))).then_some(command)
}

impl State<'_> {
    /// The kernel's route to the network of an address names the address:
    /// `10.0.0.0/24 dev ib0 proto kernel scope link src 10.0.0.1`.
    pub(super) fn address_by_route(&self, tokens: &[Token<'_>], gathering: &mut Gathering) {
        gathering.understood();
        let network = tokens.iter().find_map(|token| Some((values::prefix(token.text)?, token.line)));
        let source = value_of(tokens, "src").and_then(values::address);
        let device = value_of(tokens, "dev");
        if let (Some((network, line)), Some(address), Some(device)) = (network, source, device)
            && network.contains(address)
        {
            let prefix = Prefix { address, length: network.length };
            gathering.address(device, prefix, place(self.file, line));
        }
    }

    /// `2: ib0: <BROADCAST,UP> mtu 2044 ... inet 10.0.0.1/24 ...`, a block of
    /// `ip address show` in one statement.
    pub(super) fn printed_link(&self, tokens: &[Token<'_>], gathering: &mut Gathering) {
        gathering.understood();
        let Some(name) = tokens.first() else { return };
        let name = name.text.trim_end_matches(':');
        let name = name.split('@').next().unwrap_or(name).to_owned();
        if name == "lo" {
            return;
        }
        gathering.interface(&name);
        let mut rest = tokens.iter();
        while let Some(token) = rest.next() {
            match token.text {
                "mtu" => {
                    if let Some(bytes) = rest.next().and_then(|token| values::number(token.text)) {
                        gathering.mtu(&name, bytes, place(self.file, token.line));
                    }
                }
                "link/ether" | "link/infiniband" => {
                    let address = rest.next().map(|token| token.text.to_owned());
                    gathering.interface(&name).link_address = address;
                }
                "inet" | "inet6" => {
                    let prefix = rest.next().and_then(|token| values::prefix(token.text));
                    // Link-local addresses are the kernel's (RFC 4291, 2.5.6).
                    if let Some(prefix) = prefix.filter(|prefix| !is_link_local(*prefix)) {
                        gathering.address(&name, prefix, place(self.file, token.line));
                    }
                }
                _ => {}
            }
        }
    }
}

fn is_link_local(prefix: Prefix) -> bool {
    matches!(prefix.address, std::net::IpAddr::V6(address) if address.segments()[0] & 0xffc0 == 0xfe80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_told_from_comments() {
        for (line, command) in [
            ("# ip route show table 7", Some("ip route show table 7")),
            ("$ ip ro", Some("ip ro")),
            ("$ sudo ip rule add from 10.0.0.1 table 7", Some("ip rule add from 10.0.0.1 table 7")),
            ("root@h:~# ip -6 route", Some("ip -6 route")),
            ("[root@h ~]# /sbin/ip rule", Some("/sbin/ip rule")),
            (
                "[admin@h ~]$ ip route add 10.0.0.0/8 via 10.0.0.1",
                Some("ip route add 10.0.0.0/8 via 10.0.0.1"),
            ),
            // Commented out.
            ("# ip route add 10.0.0.0/8 via 10.0.0.1", None),
            ("# set the ip of the card", None),
            ("ip route show table 7 # the second", None),
            ("10.0.0.0/8 via 10.0.0.1", None),
        ] {
            assert_eq!(behind_prompt(line), command, "{line}");
        }
    }
}
