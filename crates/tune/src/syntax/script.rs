//! Shell scripts: `sysctl -w`, `echo` into a file below `proc/sys`, and lengths
//! of transmit queues. Other lines are ignored.

use super::{Parsed, QueueLength, Slip, Trap, dotted, numbered, shortened, statement};

pub(super) fn read(text: &str, parsed: &mut Parsed) {
    for (line, text) in numbered(text) {
        let bare = text.trim();
        if bare.is_empty() || bare.starts_with('#') {
            continue;
        }
        for command in bare.split([';', '&', '|']) {
            if let Some(length) = queue_length(line, command) {
                parsed.queue_lengths.push(length);
            }
        }
        let tokens = tokens(bare);
        for (key, value) in calls(&tokens).into_iter().chain(echo(&tokens)) {
            match statement(line, &key, &value) {
                Ok(mut statement) => {
                    // The shell removes the quotes.
                    statement.traps.retain(|trap| *trap != Trap::QuotedValue);
                    parsed.statements.push(statement);
                }
                Err(reason) => parsed.slips.push(Slip { line, text: shortened(text), reason }),
            }
        }
    }
}

/// `ip link set dev ib0 txqueuelen 10000`, `ifconfig ib0 txqueuelen 10000`.
pub(super) fn queue_length(line: u32, text: &str) -> Option<QueueLength> {
    let tokens: Vec<&str> = text.split_whitespace().collect();
    let at = tokens.iter().position(|token| matches!(*token, "txqueuelen" | "qlen" | "txqlen"))?;
    let packet_count = tokens.get(at + 1)?.parse().ok()?;
    let command = tokens.iter().position(|token| token.ends_with("ifconfig") || *token == "set")?;
    let named = tokens.get(command + 1..at)?.iter().find(|token| !matches!(**token, "dev" | "up"));
    Some(QueueLength { line, interface: named.map(|name| (*name).to_owned()), packet_count })
}

/// Splits a line into tokens as the shell does, and removes quotes.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut token = String::new();
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, c) if c.is_whitespace() || c == ';' => {
                if !token.is_empty() {
                    tokens.push(std::mem::take(&mut token));
                }
                if c == ';' {
                    tokens.push(";".to_owned());
                }
            }
            (None, '>') => {
                if !token.is_empty() {
                    tokens.push(std::mem::take(&mut token));
                }
                tokens.push(">".to_owned());
            }
            (_, c) => token.push(c),
        }
    }
    if !token.is_empty() {
        tokens.push(token);
    }
    tokens
}

/// Assignments of the `sysctl` calls in a line.
fn calls(tokens: &[String]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for token in tokens {
        match token.as_str() {
            ";" | "&&" | "||" | "|" | ">" => inside = false,
            "sysctl" => inside = true,
            token if token.ends_with("/sysctl") => inside = true,
            token if inside && !token.starts_with('-') => {
                if let Some((key, value)) = token.split_once('=') {
                    found.push((key.to_owned(), value.to_owned()));
                }
            }
            _ => {}
        }
    }
    found
}

/// `echo VALUE > proc/sys/NAME`.
fn echo(tokens: &[String]) -> Option<(String, String)> {
    let at = tokens.iter().rposition(|token| token == ">")?;
    let (_, name) = tokens.get(at + 1)?.split_once("proc/sys/")?;
    let start = tokens.iter().position(|token| token == "echo")? + 1;
    let value: Vec<&str> = tokens
        .get(start..at)?
        .iter()
        .map(String::as_str)
        .filter(|token| !matches!(*token, "-n" | "-e" | ">"))
        .collect();
    Some((dotted(name), value.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::super::{parse, tests::pairs};

    #[test]
    fn reads_what_scripts_set() {
        let parsed = parse(
            "#!/bin/sh\nset -e\nsysctl -q -w net.ipv4.tcp_rmem=\"4096 87380 4194304\" net.ipv4.tcp_sack=1\n\
             /sbin/sysctl -w net.core.rmem_max=4194304 > /dev/null\nif true; then sysctl -w net.ipv4.tcp_low_latency=1; fi\n\
             echo \"4096 65536 4194304\" > /proc/sys/net/ipv4/tcp_wmem\nip link set dev ib0 txqueuelen 10000\n\
             ifconfig ib1 txqueuelen 5000\n# sysctl -w net.ipv4.tcp_fack=1\n",
        );
        assert_eq!(
            pairs(&parsed),
            [
                (3, "net.ipv4.tcp_rmem", "4096 87380 4194304"),
                (3, "net.ipv4.tcp_sack", "1"),
                (4, "net.core.rmem_max", "4194304"),
                (5, "net.ipv4.tcp_low_latency", "1"),
                (6, "net.ipv4.tcp_wmem", "4096 65536 4194304"),
            ]
        );
        assert!(parsed.slips.is_empty() && parsed.statements.iter().all(|made| made.traps.is_empty()));
        let queues: Vec<_> =
            parsed.queue_lengths.iter().map(|set| (set.interface.as_deref(), set.packet_count)).collect();
        assert_eq!(queues, [(Some("ib0"), 10000), (Some("ib1"), 5000)]);
    }
}
