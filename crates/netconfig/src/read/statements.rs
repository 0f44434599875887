//! Lines of scripts and of printed text, joined and split into statements, which
//! are lists of tokens.

use super::{
    ip_arguments::{self, Token},
    script::printed::behind_prompt,
};

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
        let mut tokens = line.split_whitespace();
        let first = tokens.next().unwrap_or_default();
        let second = tokens.next().unwrap_or_default();
        is_ip(first)
            || matches!(first, "rule" | "route" | "nexthop" | "address" | "link")
                && matches!(second, "add" | "replace" | "del" | "set" | "append" | "change" | "prepend")
    };
    let printed = !text.starts_with("#!") && !text.lines().any(is_command);
    if printed { Style::Printed } else { Style::Commands }
}

pub(crate) fn is_ip(token: &str) -> bool {
    let token = token.trim_start_matches("$(").trim_start_matches('`');
    token == "ip"
        || token.ends_with("/ip") && !token.contains('=')
        || matches!(token, "sudo" | "$IP" | "${IP}")
}

/// The lines of a file of commands as tokens: joined at a backslash or a leading
/// `nexthop`, without comments.
pub(crate) fn command_lines(text: &str) -> Vec<Vec<Token<'_>>> {
    statements((1..).zip(text.lines()), Style::Commands)
}

/// Statements as tokens, each with its line.
pub(crate) fn statements<'a>(
    lines: impl Iterator<Item = (u32, &'a str)>,
    style: Style,
) -> Vec<Vec<Token<'a>>> {
    let mut statements: Vec<Vec<Token<'a>>> = Vec::new();
    // Below a command that shows something is its answer.
    let (mut goes_on, mut is_first, mut is_answer) = (false, false, false);
    for (line, text) in lines {
        let trimmed = text.trim_end();
        if let Some(command) = behind_prompt(text) {
            statements.push(ip_arguments::split(command, line));
            goes_on = false;
            is_first = true;
            is_answer = true;
            continue;
        }
        let (body, continues) = match trimmed.strip_suffix('\\') {
            Some(body) => (body, true),
            None => (trimmed, false),
        };
        let mut found = ip_arguments::split(body, line);
        // `ip -oneline` has a backslash in place of each line break.
        found.iter_mut().for_each(|token| token.text = token.text.trim_end_matches('\\'));
        found.retain(|token| !token.text.is_empty());
        let is_indented = text.starts_with([' ', '\t']) && !std::mem::take(&mut is_first);
        let joins = goes_on
            || found.first().is_some_and(|token| token.text == "nexthop" && is_printed_hop(&found))
            || is_indented && (style == Style::Printed || is_answer && !calls_ip(&found));
        is_answer =
            shows(&found) || is_answer && (is_indented || !found.first().is_some_and(|it| is_word(it.text)));
        goes_on = continues;
        match statements.last_mut() {
            Some(last) if joins => last.extend(found),
            _ => statements.push(found),
        }
    }
    let divided = statements.into_iter().flat_map(|statement| divide(&statement, style));
    divided.filter(|statement| !statement.is_empty()).collect()
}

/// Whether a line begins as a command does, and not as what `ip` prints.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text != "default"
        && !text.contains(['/', ':', '.'])
}

fn calls_ip(tokens: &[Token<'_>]) -> bool {
    tokens.first().is_some_and(|token| is_ip(token.text))
}

/// `ip a`, `ip route show`: a call that changes nothing.
fn shows(tokens: &[Token<'_>]) -> bool {
    let changes = ["add", "del", "delete", "replace", "change", "append", "flush", "set", "a"];
    let verb = tokens.iter().skip(2).find(|token| !token.text.starts_with('-'));
    calls_ip(tokens) && verb.is_none_or(|verb| !changes.contains(&verb.text))
}

/// `nexthop via ...` goes on with a route; `nexthop add ...` is a command.
fn is_printed_hop(tokens: &[Token<'_>]) -> bool {
    tokens.get(1).is_some_and(|token| matches!(token.text, "via" | "dev" | "weight"))
}

/// Splits at `;`, `&&`, `||` and removes redirections, except those of `echo`,
/// whose target names what is set.
pub(crate) fn divide<'a>(tokens: &[Token<'a>], style: Style) -> Vec<Vec<Token<'a>>> {
    if style == Style::Printed {
        return vec![tokens.to_vec()];
    }
    let mut parts: Vec<Vec<Token<'a>>> = Vec::new();
    let mut part: Vec<Token<'a>> = Vec::new();
    let mut is_target = false;
    for token in tokens {
        let text = token.text.trim_end_matches(';');
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
            part.push(Token { text, line: token.line });
        }
        if token.text.ends_with(';') {
            parts.push(std::mem::take(&mut part));
        }
    }
    parts.push(part);
    parts
}

/// Tokens of a statement, for messages.
pub(crate) fn joined(tokens: &[Token<'_>]) -> String {
    tokens.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
}
