//! Lines of scripts and of printed text, put together and divided into
//! statements of words.

use super::words::{self, Word};

/// How lines belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Each line is a command, unless a backslash ends it.
    Commands,
    /// Indented lines go on with the one before, as `ip` prints them.
    Printed,
}

/// A file in which `ip` is called, or that begins as a script, has commands;
/// so has one whose lines begin with an object and what to do with it.
pub(crate) fn style_of(text: &str) -> Style {
    let is_command = |line: &str| {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let second = words.next().unwrap_or_default();
        is_ip(first)
            || matches!(first, "rule" | "route" | "nexthop" | "address" | "link")
                && matches!(second, "add" | "replace" | "del" | "set" | "append" | "change" | "prepend")
    };
    let printed = !text.starts_with("#!") && !text.lines().any(is_command);
    if printed { Style::Printed } else { Style::Commands }
}

pub(crate) fn is_ip(word: &str) -> bool {
    let word = word.trim_start_matches("$(").trim_start_matches('`');
    word == "ip" || word.ends_with("/ip") && !word.contains('=') || matches!(word, "sudo" | "$IP" | "${IP}")
}

/// The lines of a file of commands as words: joined where a backslash or a
/// leading `nexthop` says so, without comments.
pub(crate) fn command_lines(text: &str) -> Vec<Vec<Word<'_>>> {
    statements(text, Style::Commands)
}

/// Statements as words, each with its line.
pub(crate) fn statements(text: &str, style: Style) -> Vec<Vec<Word<'_>>> {
    let mut statements: Vec<Vec<Word<'_>>> = Vec::new();
    let mut goes_on = false;
    for (line, text) in (1..).zip(text.lines()) {
        let trimmed = text.trim_end();
        let (body, continues) = match trimmed.strip_suffix('\\') {
            Some(body) => (body, true),
            None => (trimmed, false),
        };
        let found = words::split(body, line);
        let is_indented = text.starts_with([' ', '\t']);
        let joins = goes_on
            || found.first().is_some_and(|word| word.text == "nexthop" && is_printed_hop(&found))
            || style == Style::Printed && is_indented;
        goes_on = continues;
        match statements.last_mut() {
            Some(last) if joins => last.extend(found),
            _ => statements.push(found),
        }
    }
    let divided = statements.into_iter().flat_map(|statement| divide(&statement, style));
    divided.filter(|statement| !statement.is_empty()).collect()
}

/// `nexthop via ...` goes on with a route; `nexthop add ...` is a command.
fn is_printed_hop(words: &[Word<'_>]) -> bool {
    words.get(1).is_some_and(|word| matches!(word.text, "via" | "dev" | "weight"))
}

/// Divides at `;`, `&&`, `||` and takes redirections away, except those of
/// `echo`, which say what is set.
pub(crate) fn divide<'a>(words: &[Word<'a>], style: Style) -> Vec<Vec<Word<'a>>> {
    if style == Style::Printed {
        return vec![words.to_vec()];
    }
    let mut parts: Vec<Vec<Word<'a>>> = Vec::new();
    let mut part: Vec<Word<'a>> = Vec::new();
    let mut is_target = false;
    for word in words {
        let text = word.text.trim_end_matches(';');
        if matches!(text, "&&" | "||" | "|" | "&" | "") {
            parts.push(std::mem::take(&mut part));
            continue;
        }
        let is_echo = part.first().is_some_and(|first| first.text == "echo");
        let arrow = text.trim_start_matches(['1', '2', '&']);
        if is_target && !is_echo {
            is_target = false;
        } else if arrow.starts_with('>') && !is_echo {
            is_target = matches!(arrow, ">" | ">>");
        } else {
            part.push(Word { text, line: word.line });
        }
        if word.text.ends_with(';') {
            parts.push(std::mem::take(&mut part));
        }
    }
    parts.push(part);
    parts
}

/// Words of a statement, for messages.
pub(crate) fn joined(words: &[Word<'_>]) -> String {
    words.iter().map(|word| word.text).collect::<Vec<_>>().join(" ")
}
