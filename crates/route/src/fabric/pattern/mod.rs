//! Patterns that stand for many names or addresses: brackets that count up, or an
//! address to start from. Values are generated on request.

use std::net::IpAddr;

/// Values of a pattern: the addresses of the largest fabric.
pub(super) const LARGEST_COUNT: u64 = 1 << 20;

/// Text with brackets, `r[1-4]n[01-16]`; the last bracket counts fastest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    pieces: Vec<Piece>,
    radix: u32,
    count: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Bracket(Vec<Span>),
}

/// `first-last`, both written with at least `width` digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    /// Values of the spans before it.
    before: u64,
    first: u64,
    last: u64,
    width: usize,
}

impl Span {
    fn count(self) -> u64 {
        self.last - self.first + 1
    }
}

impl Pattern {
    /// Reads a pattern whose brackets count in decimal (names, IPv4) or, with
    /// radix 16, in hexadecimal (IPv6, link addresses).
    ///
    /// # Errors
    /// The problem, with a suggestion.
    pub fn read(text: &str, radix: u32) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        let mut count: u64 = 1;
        while let Some(open) = rest.find('[') {
            let close = rest[open..].find(']').ok_or_else(|| {
                format!("\"{text}\" has a [ without its ]: write a range as compute-[0001-4096]")
            })?;
            if open > 0 {
                pieces.push(Piece::Text(rest[..open].to_owned()));
            }
            let spans = read_bracket(&rest[open + 1..open + close], radix)?;
            let values = total(&spans);
            count = count.saturating_mul(values);
            if count > LARGEST_COUNT {
                return Err(format!("\"{text}\" stands for more than {LARGEST_COUNT} values"));
            }
            pieces.push(Piece::Bracket(spans));
            rest = &rest[open + close + 1..];
        }
        if rest.contains(']') {
            return Err(format!("\"{text}\" has a ] without its ["));
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self { pieces, radix, count: count as usize })
    }

    /// Values it stands for.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The value at `index`, which is less than [`count`](Self::count).
    pub fn nth(&self, index: usize) -> String {
        // The last bracket counts fastest, so digits are found from the end.
        let mut index = index as u64;
        let mut numbers = Vec::with_capacity(2);
        for piece in self.pieces.iter().rev() {
            if let Piece::Bracket(spans) = piece {
                let values = total(spans);
                numbers.push(number(spans, index % values));
                index /= values;
            }
        }
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Bracket(_) => {
                    let (value, width) = numbers.pop().unwrap_or_default();
                    if self.radix == 16 {
                        text.push_str(&format!("{value:0width$x}"));
                    } else {
                        text.push_str(&format!("{value:0width$}"));
                    }
                }
            }
        }
        text
    }
}

/// Values of a bracket.
fn total(spans: &[Span]) -> u64 {
    spans.last().map_or(0, |span| span.before.saturating_add(span.count()))
}

/// A bracket may list as many spans as it has values: the one of an index is searched.
fn number(spans: &[Span], index: u64) -> (u64, usize) {
    let after = spans.partition_point(|span| span.before <= index);
    after.checked_sub(1).map_or((0, 0), |at| (spans[at].first + index - spans[at].before, spans[at].width))
}

/// `1-6`, `0001-4096`, `1-3,7`.
fn read_bracket(inside: &str, radix: u32) -> Result<Vec<Span>, String> {
    let example = if radix == 16 { "[1-ff] or [1-3,7]" } else { "[1-6], [0001-4096] or [1-3,7]" };
    let wrong = || format!("[{inside}] is no range: write {example}");
    let mut spans = Vec::new();
    for part in inside.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let value = |digits: &str| {
            let only_digits = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
            let value = u64::from_str_radix(digits, radix).ok().filter(|value| *value < u64::from(u32::MAX));
            value.filter(|_| only_digits).ok_or_else(wrong)
        };
        let span = Span {
            before: total(&spans),
            first: value(first)?,
            last: value(last)?,
            // Leading zeros define the width of the numbers, as in pdsh and
            // ClusterShell.
            width: if first.starts_with('0') { first.len() } else { 1 },
        };
        if span.last < span.first {
            return Err(format!("[{inside}] counts down: write the smaller number first"));
        }
        spans.push(span);
    }
    Ok(spans)
}

/// Addresses: a pattern, or a start that counts up by one without end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressPattern {
    /// With brackets or a single address.
    Counted(Pattern),
    /// `10.100.16.1+`.
    From(IpAddr),
}

impl AddressPattern {
    /// Reads a pattern of IPv4 or IPv6 addresses.
    ///
    /// # Errors
    /// The problem, with a suggestion.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Err(format!(
                "\"{text}\" has a prefix length: the network has it, write the addresses alone"
            ));
        }
        let wrong = || {
            format!("\"{text}\" is no address pattern: write 10.10.0.[11-16], fd64::[1-1000] or 10.100.16.1+")
        };
        if let Some(start) = text.strip_suffix('+') {
            return Ok(Self::From(start.parse().map_err(|_| wrong())?));
        }
        let radix = if text.contains(':') { 16 } else { 10 };
        let pattern = Pattern::read(text, radix)?;
        // The last value has the most digits.
        for index in [0, pattern.count() - 1] {
            let address = pattern.nth(index);
            if address.parse::<IpAddr>().is_err() {
                let value = if address == text { String::new() } else { format!(" ({address})") };
                return Err(wrong() + &value);
            }
        }
        Ok(Self::Counted(pattern))
    }

    /// Whether the addresses are IPv6.
    pub fn is_ipv6(&self) -> bool {
        match self {
            Self::Counted(pattern) => pattern.radix == 16,
            Self::From(start) => start.is_ipv6(),
        }
    }

    /// Values it stands for; none when it never ends.
    pub fn count(&self) -> Option<usize> {
        match self {
            Self::Counted(pattern) => Some(pattern.count()),
            Self::From(_) => None,
        }
    }

    /// The address at `index`; none past the end, or where the value is no address.
    pub fn nth(&self, index: usize) -> Option<IpAddr> {
        match self {
            Self::Counted(pattern) if index < pattern.count() => pattern.nth(index).parse().ok(),
            Self::Counted(_) => None,
            Self::From(IpAddr::V4(start)) => {
                let address = u32::from(*start).checked_add(u32::try_from(index).ok()?)?;
                Some(IpAddr::V4(address.into()))
            }
            Self::From(IpAddr::V6(start)) => {
                Some(IpAddr::V6(u128::from(*start).checked_add(index as u128)?.into()))
            }
        }
    }
}

/// Patterns one after the other, each with the number of values before it: the one of an index is searched, as a file may
/// list every name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row<P>(Vec<(usize, P)>);

impl<P> Default for Row<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P> Row<P> {
    /// The pattern of a value, and which of its values that is.
    fn at(&self, index: usize) -> Option<(&P, usize)> {
        let after = self.0.partition_point(|(before, _)| *before <= index);
        let (before, pattern) = self.0.get(after.checked_sub(1)?)?;
        Some((pattern, index - before))
    }
}

/// Addresses of one family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressList(Row<AddressPattern>);

impl AddressList {
    /// Adds a pattern. None follows one that never ends.
    pub(super) fn push(&mut self, pattern: AddressPattern) {
        if let Some(count) = self.count() {
            self.0.0.push((count, pattern));
        }
    }

    /// Values; none when the last one never ends.
    pub fn count(&self) -> Option<usize> {
        let Some((before, pattern)) = self.0.0.last() else { return Some(0) };
        Some(before.saturating_add(pattern.count()?))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }

    /// The address at `index`.
    pub fn nth(&self, index: usize) -> Option<IpAddr> {
        let (pattern, index) = self.0.at(index)?;
        pattern.nth(index)
    }
}

/// Names or link addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameList(Row<Pattern>);

impl NameList {
    /// Adds a pattern.
    pub(super) fn push(&mut self, pattern: Pattern) {
        self.0.0.push((self.count(), pattern));
    }

    /// Values.
    pub fn count(&self) -> usize {
        self.0.0.last().map_or(0, |(before, pattern)| before.saturating_add(pattern.count()))
    }

    /// The value at `index`.
    pub fn nth(&self, index: usize) -> Option<String> {
        let (pattern, index) = self.0.at(index)?;
        (index < pattern.count()).then(|| pattern.nth(index))
    }
}

impl FromIterator<Pattern> for NameList {
    fn from_iter<I: IntoIterator<Item = Pattern>>(patterns: I) -> Self {
        let mut list = Self::default();
        patterns.into_iter().for_each(|pattern| list.push(pattern));
        list
    }
}

#[cfg(test)]
mod tests;
