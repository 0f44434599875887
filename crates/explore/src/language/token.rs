//! From text to tokens with their places.

use super::{ModelError, Place, mistake};

/// Tokens of a model: each takes some hundred times its text in memory.
const MAX_TOKENS: usize = 200_000;

/// Letters of a name, which is repeated for each instance.
const MAX_NAME: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Name(String),
    Number(i64),
    /// Punctuation and operators, as written.
    Sign(&'static str),
    End,
}

/// Longer ones first: `->` before `-`.
const SIGNS: [&str; 27] = [
    "->", "..", "==", "!=", "<=", ">=", "&&", "||", "{", "}", "[", "]", "(", ")", "=", "<", ">", "+", "-",
    "*", "/", "%", "!", ":", ";", ",", ".",
];

impl Token {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(name) => format!("`{name}`"),
            Self::Number(number) => format!("`{number}`"),
            Self::Sign(sign) => format!("`{sign}`"),
            Self::End => "the end".to_owned(),
        }
    }
}

/// All tokens; comments go from `#` to the end of a line.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, Place)>, ModelError> {
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let place = Place { line, column: text.len() - rest.len() + 1 };
            let length = |of: fn(char) -> bool| rest.find(|c| !of(c)).unwrap_or(rest.len());
            let (token, end) = if first.is_ascii_digit() {
                let end = length(|c| c.is_ascii_digit());
                let number = rest[..end].parse();
                let number = number.map_err(|_| ModelError {
                    place,
                    message: format!("{}... is too large", &rest[..end.min(20)]),
                })?;
                (Token::Number(number), end)
            } else if first.is_ascii_alphabetic() || first == '_' {
                let end = length(|c| c.is_ascii_alphanumeric() || c == '_');
                (Token::Name(rest[..end].to_owned()), end)
            } else {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
                let sign =
                    sign.ok_or_else(|| ModelError { place, message: format!("unexpected `{first}`") })?;
                (Token::Sign(sign), sign.len())
            };
            match &token {
                Token::Name(name) if name.len() > MAX_NAME => {
                    return mistake(place, format!("a name of more than {MAX_NAME} letters"));
                }
                _ if tokens.len() == MAX_TOKENS => {
                    return mistake(
                        place,
                        format!("a model of more than {MAX_TOKENS} names, numbers and signs"),
                    );
                }
                _ => tokens.push((token, place)),
            }
            rest = rest[end..].trim_start();
        }
    }
    let last = tokens.last().map_or(Place { line: 1, column: 1 }, |(_, place)| *place);
    tokens.push((Token::End, last));
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(text: &str) -> Vec<String> {
        tokens(text).unwrap().into_iter().map(|(token, _)| token.text()).collect()
    }

    #[test]
    fn text_is_split_with_places() {
        assert_eq!(signs("a->b 0..3 # note"), ["`a`", "`->`", "`b`", "`0`", "`..`", "`3`", "the end"]);
        assert_eq!(signs("x=y-1"), ["`x`", "`=`", "`y`", "`-`", "`1`", "the end"]);
        let (_, place) = tokens("\n  ab").unwrap()[0];
        assert_eq!((place.line, place.column), (2, 3));
        let error = tokens("a\n $").unwrap_err();
        assert_eq!(error.to_string(), "line 2, column 2: unexpected `$`");
        assert!(tokens("99999999999999999999").is_err());
        for long in ["x".repeat(1 << 20), "x ".repeat(1 << 19), "+".repeat(1 << 20)] {
            assert!(tokens(&long).unwrap_err().to_string().contains("more than"));
        }
    }
}
