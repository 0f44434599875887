//! What a shell makes of a script, as far as it is plain: variables that are set once
//! to a constant, words that are no programs, and programs that set no routes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

/// Words before a command.
pub(super) fn is_prefix(word: &str) -> bool {
    matches!(
        word,
        "sudo"
            | "exec"
            | "up"
            | "post-up"
            | "pre-up"
            | "then"
            | "do"
            | "else"
            | "-"
            | "if"
            | "elif"
            | "while"
            | "until"
            | "!"
            | "time"
            | "nohup"
            | "{"
            | "("
    )
}

/// Words and programs that set no routes.
pub(super) fn is_without_routes(word: &str) -> bool {
    let word = word.trim_end_matches(';');
    let words = [
        ":",
        "true",
        "false",
        "exit",
        "return",
        "set",
        "unset",
        "export",
        "readonly",
        "local",
        "shift",
        "break",
        "continue",
        "trap",
        "cd",
        "fi",
        "done",
        "esac",
        ";;",
        "}",
        ")",
        "{",
        "(",
        "for",
        "case",
        "select",
        "in",
        "function",
        "read",
        "echo",
        "printf",
        "sleep",
        "logger",
        "test",
        "[",
        "[[",
        "]",
        "]]",
        "modprobe",
        "ping",
        "ping6",
        "grep",
        "sed",
        "awk",
        "cat",
        "mkdir",
        "rm",
        "cp",
        "touch",
        "chmod",
        "chown",
        "date",
        "id",
        "sysctl",
        "wait",
        "kill",
        "type",
        "command",
        "which",
        "ethtool",
        "tc",
        "brctl",
        "bridge",
        "systemctl",
        "service",
        "EOF",
        "arp",
        "arping",
        "declare",
        "typeset",
        "let",
        "else",
        "then",
        "do",
        "wg",
        "mount",
        "umount",
        "ln",
    ];
    let name = super::last_part(word);
    words.contains(&name)
        || word.is_empty()
        || word.starts_with("[[")
        || assignment(word).is_some()
        || word.ends_with(')')
        || word.starts_with('-')
        || word.starts_with("((")
}

/// `NAME=VALUE` at the beginning of a word.
fn assignment(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    is_name(name).then_some((name, value))
}

fn is_name(text: &str) -> bool {
    text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The text with the values of variables that are set once, outside of conditions, loops and
/// functions, to a constant. Lines stay where they are.
pub(super) fn filled_in(text: &str) -> Cow<'_, str> {
    if !text.contains('$') {
        return Cow::Borrowed(text);
    }
    let values = constants(text);
    if values.is_empty() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(|line| with_values(line, &values)).collect::<Vec<_>>().join("\n"))
}

fn constants(text: &str) -> BTreeMap<String, String> {
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    let (mut seen, mut several) = (BTreeSet::new(), BTreeSet::new());
    let mut depth = 0_i32;
    for line in text.lines() {
        let line = line.trim();
        let mut words = line.split_whitespace().peekable();
        let first = words.peek().copied().unwrap_or_default();
        if first.starts_with('#') {
            continue;
        }
        depth += depth_change(line.split([' ', ';', '\t']));
        if matches!(first, "for" | "read" | "select") {
            words.next();
            several.extend(words.next().map(str::to_owned));
            continue;
        }
        while matches!(words.peek(), Some(&("export" | "readonly" | "local" | "declare"))) {
            words.next();
        }
        let Some((name, _)) = words.peek().and_then(|word| assignment(word)) else { continue };
        if !seen.insert(name.to_owned()) || depth > 0 || line.contains("+=") {
            several.insert(name.to_owned());
        }
        // One assignment to the line, or more behind semicolons.
        for part in line.split(';') {
            let part = part.trim().trim_start_matches("export ").trim_start_matches("readonly ").trim();
            let Some((name, value)) = assignment(part) else { continue };
            let value = with_values(value.split(" #").next().unwrap_or(value).trim(), &values);
            let value = value.trim_matches(['"', '\'']);
            let is_constant =
                !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "./:-_".contains(c));
            if is_constant {
                values.insert(name.to_owned(), value.to_owned());
            } else {
                several.insert(name.to_owned());
            }
        }
    }
    values.retain(|name, _| !several.contains(name));
    values
}

/// How much deeper in conditions, loops and functions what follows these words is.
pub(super) fn depth_change<'w>(words: impl Iterator<Item = &'w str>) -> i32 {
    words
        .map(|word| match word.trim_end_matches(';') {
            "if" | "for" | "while" | "until" | "case" | "{" => 1,
            "fi" | "done" | "esac" | "}" => -1,
            function if function.ends_with("(){") || function.ends_with("){") => 1,
            _ => 0,
        })
        .sum()
}

fn with_values(line: &str, values: &BTreeMap<String, String>) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        let (name, braced) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, _)) => (name, name.len() + 2),
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                (&after[..end], end)
            }
        };
        match values.get(name) {
            Some(value) => {
                text.push_str(value);
                rest = &after[braced..];
            }
            None => {
                text.push('$');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_are_constants_are_filled_in() {
        for (script, expected) in [
            ("A=10.0.0.1\nip r a $A/8 ${A}", "A=10.0.0.1\nip r a 10.0.0.1/8 10.0.0.1"),
            (
                "export A=\"eth0\" # the card\ndev $A; dev $AB",
                "export A=\"eth0\" # the card\ndev eth0; dev $AB",
            ),
            ("NET=10.1\nA=$NET.0.1\nvia $A", "NET=10.1\nA=10.1.0.1\nvia 10.1.0.1"),
            // Set twice, by a program, in a condition or by a loop: not constant.
            ("A=1\nA=2\n$A", "A=1\nA=2\n$A"),
            ("A=$(hostname)\n$A", "A=$(hostname)\n$A"),
            ("if x; then\nA=1\nfi\n$A", "if x; then\nA=1\nfi\n$A"),
            ("A=9\nfor A in 1 2; do\n$A\ndone", "A=9\nfor A in 1 2; do\n$A\ndone"),
            ("A=1; B=2\n$A$B", "A=1; B=2\n12"),
        ] {
            assert_eq!(filled_in(script), expected, "{script}");
        }
    }
}
