//! The words of `ip route`, `ip rule`, `ip nexthop` and `ip address`, as they
//! stand in scripts, batches, ifcfg files and in what `ip` prints. Their order
//! is free, as in iproute2.

mod nexthop;
mod route;
mod rule;

pub(crate) use nexthop::nexthop;
pub(crate) use route::{kind_by_number, route};
pub(crate) use rule::{rarer, rule};

use clearstream_schema::routing::Place;

use super::gathering::{Names, place};

/// A word and the line it stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: u32,
}

/// Words that are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misread(pub(crate) String);

/// What the surroundings say about words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    /// File, for places.
    pub(crate) file: &'a str,
    /// Names of tables and protocols.
    pub(crate) names: &'a Names,
    /// Family, where an option or the file's name tells it.
    pub(crate) ipv6: Option<bool>,
    /// Interface of the file, for words that name none.
    pub(crate) device: Option<&'a str>,
}

impl Context<'_> {
    fn place(&self, line: u32) -> Place {
        place(self.file, line)
    }
}

/// What words mean, and those among them that have no place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meant<T> {
    pub(crate) value: T,
    pub(crate) left_out: Vec<(u32, String)>,
}

/// Goes over words.
struct Cursor<'a, 'w> {
    words: &'w [Word<'a>],
    at: usize,
}

impl<'a, 'w> Cursor<'a, 'w> {
    fn new(words: &'w [Word<'a>]) -> Self {
        Self { words, at: 0 }
    }

    fn next(&mut self) -> Option<Word<'a>> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.at).copied()
    }

    /// The word behind `name`.
    fn value(&mut self, name: &str) -> Result<Word<'a>, Misread> {
        self.next().ok_or_else(|| Misread(format!("a value is missing behind \"{name}\"")))
    }

    /// The word behind `name`, as `read` has it.
    fn read<T>(
        &mut self,
        name: &str,
        what: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Misread> {
        let word = self.value(name)?;
        read(word.text).ok_or_else(|| Misread(unfit(name, word.text, what)))
    }
}

fn unfit(name: &str, word: &str, what: &str) -> String {
    if word.contains('$') {
        return format!("\"{name} {word}\": the shell fills this in; read the captured host instead");
    }
    format!("\"{name} {word}\" is no {what}")
}

/// A mark with or without mask: `0x1/0xff`.
pub(crate) fn mark(word: &str) -> Option<(u32, u32)> {
    let (mark, mask) = word.split_once('/').unwrap_or((word, "0xffffffff"));
    Some((super::values::number(mark)?, super::values::number(mask)?))
}

/// Divides a line into words; a comment ends it.
pub(crate) fn split(text: &str, line: u32) -> Vec<Word<'_>> {
    let words = text.split_whitespace().take_while(|word| !word.starts_with('#'));
    words.map(|text| Word { text: text.trim_matches(['"', '\'']), line }).collect()
}
