//! Files that set sysctls: sysctl.conf and similar lists, tuned profiles, shell
//! scripts. Parsing never fails as a whole: an invalid line becomes a [`Slip`],
//! the rest is parsed.

mod list;
mod script;
mod tuned;

use crate::kernel_config::OptionValue;

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// `key = value` lines (sysctl.conf(5)).
    Sysctl,
    /// A tuned profile.
    Tuned,
    /// A shell script that calls `sysctl -w` or writes below `proc/sys`.
    Script,
}

/// A mistake that is corrected here, but not by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trap {
    /// The name has a blank in place of an underscore.
    BlankInName,
    /// The value is in quotes, which sysctl(8) passes to the kernel.
    QuotedValue,
    /// A comment follows the value; sysctl(8) passes it to the kernel.
    TrailingComment,
    /// Fields of the value are separated by commas.
    Commas,
}

/// A line that sets a sysctl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Line number, from 1.
    pub line: u32,
    /// Dotted name, corrected where the line misspells it.
    pub key: String,
    /// Name in the file, when it differs.
    pub(crate) written: Option<String>,
    /// Corrected value; may be empty for some keys.
    pub value: String,
    /// Whether errors of this line are ignored (`-key = value`).
    pub(crate) errors_ignored: bool,
    /// Whether the value is a bound (tuned's `>` and `<`).
    pub(crate) is_bound: bool,
    /// Mistakes in the line.
    pub(crate) traps: Vec<Trap>,
}

/// A line that sets the length of a transmit queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueLength {
    /// Line number, from 1.
    pub(crate) line: u32,
    /// Interface; absent when it applies to all.
    pub(crate) interface: Option<String>,
    /// Length in packets.
    pub(crate) packet_count: u64,
}

/// A line that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slip {
    /// Line number, from 1.
    pub line: u32,
    /// The line, shortened.
    pub text: String,
    /// Reason, with a suggested correction.
    pub reason: String,
}

/// Parsed content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// Detected format.
    pub(crate) format: Format,
    /// Statements in the order of the file.
    pub statements: Vec<Statement>,
    /// Transmit queue lengths.
    pub(crate) queue_lengths: Vec<QueueLength>,
    /// Options of a kernel configuration, with their line numbers.
    pub(crate) options: Vec<(u32, String, OptionValue)>,
    /// Included profiles (tuned's `include`).
    pub(crate) includes: Vec<String>,
    /// Lines that could not be parsed.
    pub slips: Vec<Slip>,
}

/// Parses a file of any supported format.
pub fn parse(text: &str) -> Parsed {
    let format = format_of(text);
    let mut parsed = Parsed {
        format,
        statements: Vec::new(),
        queue_lengths: Vec::new(),
        options: Vec::new(),
        includes: Vec::new(),
        slips: Vec::new(),
    };
    match format {
        Format::Sysctl => list::read(text, &mut parsed),
        Format::Tuned => tuned::read(text, &mut parsed),
        Format::Script => script::read(text, &mut parsed),
    }
    parsed
}

/// Detects the format: a profile has sections, a script calls sysctl; all else is a list.
fn format_of(text: &str) -> Format {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    if lines.clone().any(|line| matches!(line, "[main]" | "[sysctl]")) {
        return Format::Tuned;
    }
    let is_call = |line: &str| {
        let mut tokens = line.split_whitespace();
        tokens.any(|token| token == "sysctl" || token.ends_with("/sysctl"))
            && tokens.next().is_some_and(|token| token.starts_with('-') || token.contains('='))
    };
    let is_command = |line: &str| {
        !line.starts_with('#') && (is_call(line) || line.contains("proc/sys/") && line.contains('>'))
    };
    if text.starts_with("#!") || lines.any(is_command) { Format::Script } else { Format::Sysctl }
}

/// Numbers lines from 1.
fn numbered(text: &str) -> impl Iterator<Item = (u32, &str)> {
    (1..).zip(text.lines())
}

/// Returns a line for a message: without control characters, truncated.
fn shortened(text: &str) -> String {
    let plain: String = text.trim().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    match plain.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &plain[..end]),
        None => plain,
    }
}

/// Creates a statement from a name and a value.
fn statement(line: u32, name: &str, value: &str) -> Result<Statement, String> {
    let (name, errors_ignored) = match name.trim().strip_prefix('-') {
        Some(rest) => (rest.trim_start(), true),
        None => (name.trim(), false),
    };
    let mut traps = Vec::new();
    // Markdown escapes underscores.
    let mut key = dotted(&name.replace("\\_", "_"));
    if key.split_whitespace().nth(1).is_some() {
        key = key.split_whitespace().collect::<Vec<_>>().join("_");
        traps.push(Trap::BlankInName);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-/*?[]:@".contains(c);
    if key.is_empty() || !key.chars().all(is_name) || !key.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err("the part before \"=\" is no name of a sysctl: write it as net.ipv4.tcp_rmem".to_owned());
    }
    if !key.contains('.') && traps.contains(&Trap::BlankInName) {
        return Err("not a setting: write KEY = VALUE, or begin a comment with #".to_owned());
    }
    let value = meant_value(value, &mut traps);
    let written = (key != name).then(|| name.to_owned());
    Ok(Statement { line, key, written, value, errors_ignored, is_bound: false, traps })
}

/// Returns the value without comment, quotes and commas.
fn meant_value(value: &str, traps: &mut Vec<Trap>) -> String {
    let mut value = value.trim();
    if let Some((before, _)) = value.split_once(" #").or_else(|| value.split_once("\t#")) {
        traps.push(Trap::TrailingComment);
        value = before.trim_end();
    }
    let bare = value.trim_matches(['"', '\'']);
    if bare != value {
        traps.push(Trap::QuotedValue);
    }
    let fields: Vec<&str> = bare.split_whitespace().collect();
    let joined = fields.join(" ");
    let is_list_of_numbers =
        joined.contains(',') && joined.chars().all(|c| c.is_ascii_digit() || c == ',' || c == ' ');
    if is_list_of_numbers {
        traps.push(Trap::Commas);
        return joined.split([',', ' ']).filter(|field| !field.is_empty()).collect::<Vec<_>>().join(" ");
    }
    joined
}

/// Converts a name to dots as sysctl(8) does: where a slash comes first, slashes
/// separate components and dots belong to them (`net/ipv4/conf/eth0.100/mtu`);
/// otherwise the reverse.
pub(crate) fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes().get(at) == Some(&b'/') => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn pairs(parsed: &Parsed) -> Vec<(u32, &str, &str)> {
        parsed.statements.iter().map(|s| (s.line, s.key.as_str(), s.value.as_str())).collect()
    }

    #[test]
    fn names_with_slashes_are_as_sysctl_reads_them() {
        // Examples of sysctl(8) and sysctl.d(5).
        assert_eq!(dotted("net/ipv4/conf/enp3s0.200/forwarding"), "net.ipv4.conf.enp3s0/200.forwarding");
        assert_eq!(dotted("net.ipv4.conf.enp3s0/200.forwarding"), "net.ipv4.conf.enp3s0/200.forwarding");
        assert_eq!(dotted("kernel/domainname"), "kernel.domainname");
    }

    #[test]
    fn distinguishes_the_formats() {
        for (text, format) in [
            ("net.ipv4.tcp_sack = 1\n", Format::Sysctl),
            ("# call sysctl -p afterwards\nnet.ipv4.tcp_sack=1\n", Format::Sysctl),
            ("#\n[main]\ninclude=x\n[sysctl]\na.b=1\n", Format::Tuned),
            ("#!/bin/sh\nexit 0\n", Format::Script),
            ("sysctl -w net.ipv4.tcp_sack=1\n", Format::Script),
            ("/sbin/sysctl net.ipv4.tcp_sack=1\n", Format::Script),
            ("echo 1 > /proc/sys/net/ipv4/tcp_sack\n", Format::Script),
        ] {
            assert_eq!(format_of(text), format, "{text}");
        }
    }

    proptest! {
        /// For any text: no panic, each line is reported at most once, and names
        /// are safe to print in a message.
        #[test]
        fn never_panics(text in "(\\[main\\]\n|#!sh\n)?([-a-z0-9._/ =\"'#;,>$\\[\\]\\\\]{0,40}\n|\\PC{0,30}\n|sysctl -w [a-z=\" ]{0,20}\n){0,12}") {
            let parsed = parse(&text);
            let count = u32::try_from(text.lines().count()).unwrap();
            for slip in &parsed.slips {
                prop_assert!(slip.line >= 1 && slip.line <= count);
                prop_assert!(!slip.text.chars().any(char::is_control));
            }
            for statement in &parsed.statements {
                prop_assert!(statement.line >= 1 && statement.line <= count);
                prop_assert!(!statement.key.contains(char::is_whitespace));
            }
        }
    }
}
