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
        let delimiter = delimiter(&text);
        for piece in divided(&text) {
            pieces.push((line, piece));
        }
        let Some(end) = delimiter else { continue };
        let mut body = Vec::new();
        for (at, text) in lines.by_ref() {
            if text.trim() == end {
                break;
            }
            // What `cat` writes to a file is no command; names of tables are told from the rest below.
            if !writes_a_file(&pieces) && !ends_a_loop(&pieces) {
                pieces.push((at, text.clone()));
            } else if text_names_tables(&pieces) {
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
    let (_, rest) = line.split_once("<<")?;
    let rest = rest.strip_prefix('-').unwrap_or(rest).trim_start();
    let word = rest.split(|c: char| c.is_whitespace() || matches!(c, ';' | '|' | '>')).next()?;
    let word = word.trim_matches(['\'', '"', '\\']);
    let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_word.then(|| word.to_owned())
}

fn writes_a_file(pieces: &[Piece]) -> bool {
    let is_begin = |text: &str| text.contains("<<");
    let begin = pieces.iter().rev().find(|(_, text)| is_begin(text));
    begin.is_some_and(|(_, text)| {
        let first = text.split_whitespace().find(|word| !super::shell::is_prefix(word)).unwrap_or_default();
        matches!(first, "cat" | "tee" | ":") || text.contains("| tee ") || text.contains("| sudo tee ")
    })
}

fn ends_a_loop(pieces: &[Piece]) -> bool {
    pieces.last().is_some_and(|(_, text)| text.trim_start().starts_with("done"))
}

fn text_names_tables(pieces: &[Piece]) -> bool {
    let begin = pieces.iter().rev().find(|(_, text)| text.contains("<<"));
    begin.is_some_and(|(_, text)| text.contains("rt_tables"))
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
    Some(words.into_iter().map(|word| format!("{before}{word}{after}")).collect())
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
