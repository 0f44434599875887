//! The content of a table of nft(8), family `inet`, as the value of a setting: the
//! text between its braces, on one line.

use std::{fmt, str::FromStr};

/// Content of one table. Two are equal when they have the same meaning: versions of
/// the program differ in blanks, quotes, the names of priorities and the spelling of
/// numbers.
#[derive(Debug, Clone, Eq)]
pub struct TableText(String);

/// A text that is not the content of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TableError(&'static str);

/// Statements that read files or define variables (nft(8), INPUT FILE FORMATS).
const DIRECTIVES: [&str; 4] = ["include", "define", "redefine", "undefine"];

impl TableText {
    /// The text of a table's content from what `nft list table` shows; it need not be one that
    /// can be written.
    pub fn shown(text: &str) -> String {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let inside = lines.get(1..lines.len().saturating_sub(1)).unwrap_or_default();
        let mut text = String::new();
        for line in inside {
            text.push_str(line);
            // A block ends with its line; on one line it needs a semicolon too.
            text.push_str(if line.ends_with(['{', ';']) { " " } else { "; " });
        }
        text.trim_end().to_owned()
    }
}

impl fmt::Display for TableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TableText {
    type Err = TableError;

    /// Fails for a text that closes the table and goes on, hides braces in strings or
    /// comments, or reads a file.
    fn from_str(text: &str) -> Result<Self, TableError> {
        let (mut depth, mut quoted) = (0i32, false);
        for letter in text.chars() {
            match letter {
                '"' => quoted = !quoted,
                '{' | '}' | ';' if quoted => {
                    return Err(TableError("braces and semicolons do not stand in quotes here"));
                }
                '{' => depth += 1,
                '}' => depth -= 1,
                '#' | '$' | '\\' | '`' => {
                    return Err(TableError("the text of a table has no \"#\", \"$\", \"\\\" and \"`\""));
                }
                letter if letter.is_control() => return Err(TableError("the text of a table is one line")),
                _ => {}
            }
            if depth < 0 {
                return Err(TableError("it closes more braces than it opens"));
            }
        }
        if depth != 0 {
            return Err(TableError("it opens more braces than it closes"));
        }
        if quoted {
            return Err(TableError("it ends inside of quotes"));
        }
        let separator = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '-';
        if text.split(separator).any(|token| DIRECTIVES.contains(&token)) {
            return Err(TableError("the text of a table includes no file and defines no variable"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl PartialEq for TableText {
    fn eq(&self, other: &Self) -> bool {
        tokens(&self.0) == tokens(&other.0)
    }
}

fn tokens(text: &str) -> Vec<String> {
    let spaced = text.replace('{', " { ").replace('}', " } ").replace([';', ',', '"'], " ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut plain = Vec::new();
    let mut rest = tokens.iter().peekable();
    while let Some(token) = rest.next() {
        // What a chain does unless specified otherwise.
        if *token == "policy" && rest.peek() == Some(&&"accept") {
            rest.next();
            continue;
        }
        plain.push(match *token {
            // nft(8), standard priority names.
            "raw" => "-300".to_owned(),
            "mangle" => "-150".to_owned(),
            "filter" if plain.last().is_some_and(|last: &String| last == "priority") => "0".to_owned(),
            token => match token.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16)) {
                Some(Ok(number)) => number.to_string(),
                _ => token.to_owned(),
            },
        });
    }
    plain
}
