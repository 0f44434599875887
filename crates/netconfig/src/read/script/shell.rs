//! Words of a shell: variables and what stands for them, words that are no programs, and
//! programs that set no routes.

use std::collections::BTreeMap;

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
pub(super) fn assignment(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    is_name(name).then_some((name, value))
}

fn is_name(text: &str) -> bool {
    text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
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

/// Variables that have a constant as their value; arguments by their number.
pub(super) type Values = BTreeMap<String, String>;

/// A line with the values of its variables: `$A`, `${A}`, `${A:-default}` and sums, `$((A + 1))`.
pub(super) fn with_values(line: &str, values: &Values) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        let (value, length) = expression(after, values);
        match value {
            Some(value) => {
                text.push_str(&value);
                rest = &after[length..];
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

/// The value of what stands behind a dollar, and the length of that.
fn expression(after: &str, values: &Values) -> (Option<String>, usize) {
    if let Some((sum, _)) = after.strip_prefix("((").and_then(|inner| inner.split_once("))")) {
        return (arithmetic(sum, values), sum.len() + 4);
    }
    if let Some((inner, _)) = after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        let name_end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
        let (name, operator) = inner.split_at(name_end);
        let default = [":-", "-", ":="].iter().find_map(|start| operator.strip_prefix(start));
        let value = match (operator, default) {
            ("", _) => values.get(name).cloned(),
            (_, Some(default)) => {
                values.get(name).cloned().or_else(|| Some(default.trim_matches(['"', '\'']).to_owned()))
            }
            _ => None,
        };
        return (value, inner.len() + 2);
    }
    let end = match after.chars().next() {
        Some('@' | '*' | '0'..='9') => 1,
        _ => after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len()),
    };
    (values.get(&after[..end]).cloned(), end)
}

/// `100 + i`, `$i * 2`: one operation at most.
fn arithmetic(sum: &str, values: &Values) -> Option<String> {
    let number = |text: &str| {
        let name = text.trim().trim_start_matches('$').trim_matches(['{', '}']);
        values.get(name).map_or(name, String::as_str).parse::<i64>().ok()
    };
    let operator = sum.trim().find(['+', '-', '*']).filter(|at| *at > 0);
    let Some(at) = operator else { return number(sum).map(|number| number.to_string()) };
    let (one, rest) = sum.trim().split_at(at);
    let (one, other) = (number(one)?, number(&rest[1..])?);
    let result = match &rest[..1] {
        "+" => one.checked_add(other),
        "-" => one.checked_sub(other),
        _ => one.checked_mul(other),
    };
    result.map(|result| result.to_string())
}
