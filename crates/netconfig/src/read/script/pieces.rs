//! The text of a script in pieces: its lines, commands, here-documents, words and values.

use std::collections::BTreeMap;

/// A command or a part of one, with its line.
pub(super) type Piece = (u32, String);

/// Commands of a line apart, and the here-documents by the line that begins them.
pub(super) fn pieces(text: &str) -> (Vec<Piece>, BTreeMap<u32, Vec<String>>) {
    let (mut pieces, mut documents) = (Vec::new(), BTreeMap::new());
    let mut lines = (1..).zip(text.lines().map(str::to_owned));
    while let Some((line, text)) = lines.next() {
        if text.trim_start().starts_with('#') {
            pieces.push((line, text));
            continue;
        }
        let commands = divided(&text);
        let begin = commands.iter().rev().find(|command| command.contains("<<")).cloned();
        let is_end_of_loop = commands.last().is_some_and(|last| last.trim_start().starts_with("done"));
        pieces.extend(commands.into_iter().map(|command| (line, command)));
        let Some((end, begin)) = begin.and_then(|begin| Some((delimiter(&begin)?, begin))) else { continue };
        let (is_input, names_tables) = (is_end_of_loop || writes_a_file(&begin), begin.contains("rt_tables"));
        let mut body = Vec::new();
        for (at, text) in lines.by_ref() {
            if text.trim() == end {
                break;
            }
            // What `cat` writes to a file is no command, but for names of tables.
            if !is_input {
                pieces.push((at, text.clone()));
            } else if names_tables {
                pieces.push((at, format!("echo {} >>/etc/iproute2/rt_tables", text.trim())));
            }
            body.push(text);
        }
        documents.insert(line, body);
    }
    (pieces, documents)
}

/// The word that ends a here-document, `<<EOF`, `<<-'EOF'`.
fn delimiter(line: &str) -> Option<String> {
    // In `$((1 << 2))` it is a shift.
    let (_, rest) = line.split_once("<<").filter(|(before, _)| !before.contains("(("))?;
    let rest = rest.strip_prefix('-').unwrap_or(rest).trim_start();
    let word = rest.split(|c: char| c.is_whitespace() || matches!(c, ';' | '|' | '>')).next()?;
    let word = word.trim_matches(['\'', '"', '\\']);
    let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_word.then(|| word.to_owned())
}

/// Whether the command that begins a here-document writes it to a file.
fn writes_a_file(command: &str) -> bool {
    let first = command.split_whitespace().find(|word| !super::shell::is_prefix(word)).unwrap_or_default();
    matches!(first, "cat" | "tee" | ":") || command.contains("| tee ") || command.contains("| sudo tee ")
}

/// Commands of a line: apart at `;` outside of quotes and brackets, and behind `do`, `then`, `else` and `{`.
fn divided(line: &str) -> Vec<String> {
    let (mut parts, mut part, mut quote, mut depth) = (Vec::new(), String::new(), None, 0_i32);
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if part.is_empty() || part.ends_with([' ', '\t']) => break,
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, ';') if depth <= 0 => {
                // `;;` ends a case.
                if characters.peek() == Some(&';') {
                    characters.next();
                    part.push_str(" ;;");
                }
                parts.push(std::mem::take(&mut part));
                // A blank at the beginning of a line has a meaning in what `ip` prints.
                while characters.next_if(|c| c.is_whitespace()).is_some() {}
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    let mut commands = Vec::new();
    for part in parts {
        let mut rest = part.as_str();
        while let Some((word, behind)) = rest.trim_start().split_once([' ', '\t'])
            && matches!(word, "do" | "then" | "else" | "{")
        {
            commands.push(word.to_owned());
            rest = behind;
        }
        if !rest.trim().is_empty() || part.is_empty() {
            commands.push(rest.to_owned());
        }
    }
    commands
}

/// Bytes of the words that braces stand for.
const MOST_BYTES: usize = 1 << 20;

/// `eth{0,1}` and `eth{1..4}`.
pub(super) fn braces(word: &str) -> Option<Vec<String>> {
    let (before, rest) = word.split_once('{')?;
    let (inside, after) = rest.split_once('}')?;
    if before.ends_with('$') {
        return None;
    }
    let words: Vec<String> = match inside.split_once("..") {
        Some((first, last)) => numbered(first.parse().ok()?, last.parse().ok()?)?,
        None => inside.split(',').map(str::to_owned).collect(),
    };
    let is_bounded = words.len().saturating_mul(word.len()) <= MOST_BYTES;
    is_bounded.then(|| words.into_iter().map(|word| format!("{before}{word}{after}")).collect())
}

pub(super) fn numbered(first: i64, last: i64) -> Option<Vec<String>> {
    let is_bounded = last.checked_sub(first).is_some_and(|count| (0..4096).contains(&count));
    is_bounded.then(|| (first..=last).map(|number| number.to_string()).collect())
}

/// Words apart, without the quotes around them.
pub(super) fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_word) = (Vec::new(), String::new(), None, false);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (None, ' ' | '\t' | '\n') => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            _ => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

/// The value of an assignment without its quotes, and what stands behind it.
pub(super) fn first_value(text: &str) -> (String, Option<&str>) {
    for quote in ['"', '\''] {
        if let Some((value, behind)) = text.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return (value.to_owned(), Some(behind.trim()).filter(|behind| !behind.is_empty()));
        }
    }
    match text.split_once([' ', '\t']) {
        Some((value, behind)) => (value.to_owned(), Some(behind.trim()).filter(|behind| !behind.is_empty())),
        None => (text.to_owned(), None),
    }
}

/// Whether a text has nothing more for a shell to do.
pub(super) fn is_constant(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "./:-_ @,=%+".contains(c))
}
