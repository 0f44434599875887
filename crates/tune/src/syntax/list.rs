//! Lists: sysctl.conf(5), sysctl.d(5), lists copied from papers and web pages,
//! and kernel configurations.

use super::{Parsed, Slip, numbered, shortened, statement};
use crate::kernel_config;

pub(super) fn read(text: &str, parsed: &mut Parsed) {
    for (line, text) in numbered(text) {
        let bare = text.trim();
        if let Some((name, value)) = kernel_config::read_line(bare) {
            parsed.options.push((line, name, value));
            continue;
        }
        // Copied lists may be in a Markdown code fence.
        if bare.is_empty() || bare.starts_with(['#', ';']) || bare.starts_with("```") {
            continue;
        }
        let made = match bare.split_once('=') {
            Some((name, value)) => statement(line, name, value),
            None => match super::script::queue_length(line, bare) {
                Some(length) => {
                    parsed.queue_lengths.push(length);
                    continue;
                }
                None => Err("not a setting: write KEY = VALUE, or begin a comment with #".to_owned()),
            },
        };
        match made {
            Ok(statement) => parsed.statements.push(statement),
            Err(reason) => parsed.slips.push(Slip { line, text: shortened(text), reason }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Trap, parse, tests::pairs};

    #[test]
    fn reads_every_form_of_a_line() {
        let parsed = parse(
            "# comment\n; another\n\nnet.ipv4.tcp_sack=1\n net.core.rmem_max  =  102400000 \n\
             -net.core.default_qdisc = fq\nnet/ipv4/tcp_rmem = 4096\t87380   16777216\n",
        );
        assert_eq!(
            pairs(&parsed),
            [
                (4, "net.ipv4.tcp_sack", "1"),
                (5, "net.core.rmem_max", "102400000"),
                (6, "net.core.default_qdisc", "fq"),
                (7, "net.ipv4.tcp_rmem", "4096 87380 16777216"),
            ]
        );
        assert!(parsed.slips.is_empty());
        assert!(parsed.statements[2].errors_ignored);
    }

    #[test]
    fn sees_what_the_kernel_would_refuse() {
        let parsed = parse(
            "net.ipv4.tcp rmem = 4096 87380 1\nnet.ipv4.tcp_rmem = \"4096 87380 1\"\n\
             net.ipv4.tcp_sack = 1 # selective\nnet.ipv4.tcp\\_timestamps=0\nnet.ipv4.tcp_wmem = 4096, 16384, 1\n",
        );
        let traps: Vec<_> = parsed.statements.iter().map(|statement| statement.traps.as_slice()).collect();
        assert_eq!(
            traps,
            [&[Trap::BlankInName][..], &[Trap::QuotedValue], &[Trap::TrailingComment], &[], &[Trap::Commas]]
        );
        assert_eq!(parsed.statements[0].key, "net.ipv4.tcp_rmem");
        assert_eq!(parsed.statements[0].written.as_deref(), Some("net.ipv4.tcp rmem"));
        assert_eq!(parsed.statements[2].value, "1");
        assert_eq!(parsed.statements[3].key, "net.ipv4.tcp_timestamps");
    }

    #[test]
    fn invalid_lines_are_reported_and_the_rest_is_read() {
        let parsed = parse(
            "\u{1}\u{2}binary\nnet.ipv4.tcp_sack = 1\n= 5\nsome lines of prose\nnet.ipv4.tcp_dsack =\n",
        );
        let lines: Vec<u32> = parsed.slips.iter().map(|slip| slip.line).collect();
        assert_eq!(lines, [1, 3, 4]);
        assert_eq!(pairs(&parsed), [(2, "net.ipv4.tcp_sack", "1"), (5, "net.ipv4.tcp_dsack", "")]);
    }
}
