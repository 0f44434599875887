//! Profiles of tuned: an INI file of which `[sysctl]`, `[net]` and the includes
//! of `[main]` are read (tuned.conf(5)).

use super::{Parsed, QueueLength, Slip, Trap, numbered, shortened, statement};

pub(super) fn read(text: &str, parsed: &mut Parsed) {
    let mut section = String::new();
    for (line, text) in numbered(text) {
        let bare = text.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
            continue;
        }
        let mut slip = |reason: String| {
            parsed.slips.push(Slip { line, text: shortened(text), reason });
        };
        let Some((name, value)) = bare.split_once('=') else {
            // Other plugins have other formats.
            if matches!(section.as_str(), "sysctl" | "main") {
                slip("not a setting: write KEY = VALUE, or begin a comment with #".to_owned());
            }
            continue;
        };
        match section.as_str() {
            "sysctl" => {
                // `=>` and `=<`: not lower, not higher than.
                let bound = value.trim_start().strip_prefix(['>', '<']);
                match statement(line, name, bound.unwrap_or(value)) {
                    Ok(mut statement) => {
                        // tuned removes the quotes.
                        statement.traps.retain(|trap| *trap != Trap::QuotedValue);
                        statement.is_bound = bound.is_some();
                        parsed.statements.push(statement);
                    }
                    Err(reason) => slip(reason),
                }
            }
            "main" if name.trim() == "include" => {
                let names = value.split([',', ' ']).filter(|name| !name.is_empty());
                parsed.includes.extend(names.map(str::to_owned));
            }
            "net" if name.trim() == "txqueuelen" => match value.trim().parse() {
                Ok(packet_count) => {
                    parsed.queue_lengths.push(QueueLength { line, interface: None, packet_count });
                }
                Err(_) => slip("txqueuelen is a number of packets".to_owned()),
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse, tests::pairs};

    #[test]
    fn reads_a_profile() {
        let parsed = parse(
            "[main]\nsummary=Optimize\ninclude=throughput-performance\n\n[cpu]\ngovernor=performance\nlatency\n\
             [sysctl]\nnet.ipv4.tcp_rmem=\"4096 131072 16777216\"\nnet.core.somaxconn=>2048\nnonsense\n\
             [net]\ntxqueuelen=10000\n",
        );
        assert_eq!(
            pairs(&parsed),
            [(9, "net.ipv4.tcp_rmem", "4096 131072 16777216"), (10, "net.core.somaxconn", "2048")]
        );
        assert!(parsed.statements[0].traps.is_empty() && parsed.statements[1].is_bound);
        assert_eq!(parsed.includes, ["throughput-performance"]);
        assert_eq!(parsed.slips.iter().map(|slip| slip.line).collect::<Vec<_>>(), [11]);
        assert_eq!(parsed.queue_lengths[0].packet_count, 10000);
    }
}
