//! Identifiers, string literals and comments of a Rust source text.

/// A part of a source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Identifier(&'a str),
    /// Content of a string literal, escapes not resolved.
    Text(&'a str),
    /// A comment with its slashes.
    Comment(&'a str),
}

/// All pieces with their line numbers. Numbers, characters, lifetimes and punctuation are left out.
pub(crate) fn pieces(text: &str) -> Vec<(usize, Piece<'_>)> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (length, piece) = next(rest, first);
        found.extend(piece.map(|piece| (line, piece)));
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

fn next(rest: &str, first: char) -> (usize, Option<Piece<'_>>) {
    if rest.starts_with("//") {
        let end = rest.find('\n').unwrap_or(rest.len());
        return (end, Some(Piece::Comment(&rest[..end])));
    }
    if let Some(text) = rest.strip_prefix("/*") {
        let end = text.find("*/").map_or(rest.len(), |end| end + 4);
        return (end, Some(Piece::Comment(&rest[..end])));
    }
    if let Some((start, end, length)) = literal(rest) {
        return (length, Some(Piece::Text(&rest[start..end])));
    }
    if first == '\'' {
        return (character(rest), None);
    }
    let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    match length {
        0 => (first.len_utf8(), None),
        _ if first.is_ascii_digit() => (length, None),
        _ => (length, Some(Piece::Identifier(&rest[..length]))),
    }
}

/// Start and end of the content of a string literal that begins here, and its length.
fn literal(rest: &str) -> Option<(usize, usize, usize)> {
    // Not further: a search to the next quote from each place would be quadratic.
    let quoted = rest.bytes().take(3).position(|byte| matches!(byte, b'"' | b'#'));
    let prefix = quoted.filter(|at| matches!(&rest[..*at], "" | "b" | "c" | "r" | "br" | "cr"))?;
    let hashes = rest[prefix..].find(|c| c != '#')?;
    let start = prefix + hashes + 1;
    if !rest[prefix + hashes..].starts_with('"') || hashes > 0 && !rest[..prefix].ends_with('r') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let end = if rest[..prefix].ends_with('r') {
        start + rest[start..].find(&close)?
    } else {
        let mut escaped = false;
        let is_end = |c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        };
        start + rest[start..].find(is_end)?
    };
    Some((start, end, end + close.len()))
}

/// Length of a character literal, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => chars.skip(1).find(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1),
        _ => chars.next().filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1),
    }
}

#[test]
fn a_source_is_taken_apart() {
    let source = "/// Help.\nfn say<'a>(c: char) -> &'a str {\n    let _ = ['\"', '\\'', 'x'];\n    \
                  r#\"raw \" text\"# // end\n}\nconst X: &str = \"a \\\" b\";\n";
    let names = |(line, piece)| match piece {
        Piece::Identifier("say" | "X" | "x") | Piece::Text(_) | Piece::Comment(_) => Some((line, piece)),
        Piece::Identifier(_) => None,
    };
    let found: Vec<_> = pieces(source).into_iter().filter_map(names).collect();
    let expected = [
        (1, Piece::Comment("/// Help.")),
        (2, Piece::Identifier("say")),
        (4, Piece::Text("raw \" text")),
        (4, Piece::Comment("// end")),
        (6, Piece::Identifier("X")),
        (6, Piece::Text("a \\\" b")),
    ];
    assert_eq!(found, expected);
}
