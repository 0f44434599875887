//! Words of a shell: variables and what stands for them, words that are no programs, and
//! programs that set no routes.

use std::collections::{BTreeMap, BTreeSet};

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

/// How much deeper in conditions, loops and functions what follows these words is. A word counts where a command
/// begins: `echo wait for the link` opens nothing.
pub(super) fn depth_change<'w>(words: impl Iterator<Item = &'w str>) -> i32 {
    let (mut depth, mut is_begin, mut before, mut is_case) = (0, true, "", false);
    for word in words.filter(|word| !word.is_empty()) {
        let bare = word.trim_end_matches(';');
        if is_begin {
            depth += match bare {
                "if" | "for" | "while" | "until" | "select" | "case" | "{" => 1,
                "fi" | "done" | "esac" | "}" => -1,
                function if function.ends_with("){") => 1,
                _ => 0,
            };
            is_case |= bare == "case";
        }
        let is_divider = word.ends_with(';') || matches!(bare, "&&" | "||" | "|" | "&");
        // `name() {`, `name () {`, `function name {`, `case x in a) if ...`
        let is_name = bare == "()" || before == "function" || is_case && bare == "in";
        is_begin = is_divider || is_name || is_begin && (is_prefix(bare) || bare.ends_with([')', '{']));
        before = bare;
    }
    depth
}

/// Bytes of a line with values in it.
const MOST_BYTES: usize = 64 << 10;

/// Variables of a shell, as far as they are known; arguments by their number.
#[derive(Debug, Default)]
pub(super) struct Values {
    constants: BTreeMap<String, String>,
    /// What has a value that is not known.
    unknown: BTreeSet<String>,
}

impl Values {
    /// The constant that a variable is.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.constants.get(name).map(String::as_str)
    }

    pub(super) fn set(&mut self, name: &str, value: String) {
        self.unknown.remove(name);
        self.constants.insert(name.to_owned(), value);
    }

    /// The variable has a value that is not known.
    pub(super) fn forget(&mut self, name: &str) {
        self.constants.remove(name);
        self.unknown.insert(name.to_owned());
    }

    /// No variable that was set is known any more.
    pub(super) fn forget_all(&mut self) {
        self.unknown.extend(std::mem::take(&mut self.constants).into_keys());
    }

    /// The variable has no value; gives back what it was.
    pub(super) fn unset(&mut self, name: &str) -> Before {
        match (self.constants.remove(name), self.unknown.remove(name)) {
            (Some(value), _) => Before::Constant(value),
            (None, true) => Before::Unknown,
            (None, false) => Before::Unset,
        }
    }

    /// The variable is again what it was.
    pub(super) fn restore(&mut self, name: &str, before: Before) {
        match before {
            Before::Constant(value) => self.set(name, value),
            Before::Unknown => self.forget(name),
            Before::Unset => {
                self.unset(name);
            }
        }
    }
}

/// What a variable was.
#[derive(Debug)]
pub(super) enum Before {
    Constant(String),
    Unknown,
    Unset,
}

/// A line with the values of its variables: `$A`, `${A}`, `${A:-default}` and sums, `$((A + 1))`. What would make it too
/// long stays as it is, and so is not known.
pub(super) fn with_values(line: &str, values: &Values) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        let (value, length) = expression(after, values);
        match value.filter(|value| text.len() + value.len() <= MOST_BYTES) {
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
            ("", _) => values.get(name).map(str::to_owned),
            (_, Some(_)) if values.unknown.contains(name) => None,
            (_, Some(default)) => {
                Some(values.get(name).unwrap_or_else(|| default.trim_matches(['"', '\''])).to_owned())
            }
            _ => None,
        };
        return (value, inner.len() + 2);
    }
    let end = match after.chars().next() {
        Some('@' | '*' | '0'..='9') => 1,
        _ => after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len()),
    };
    (values.get(&after[..end]).map(str::to_owned), end)
}

/// `100 + i`, `$i * 2`: one operation at most.
fn arithmetic(sum: &str, values: &Values) -> Option<String> {
    let number = |text: &str| {
        let name = text.trim().trim_start_matches('$').trim_matches(['{', '}']);
        values.get(name).unwrap_or(name).parse::<i64>().ok()
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
