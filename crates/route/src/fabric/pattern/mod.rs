//! Patterns that stand for many names or addresses: brackets that count up, or an
//! address to start from. Values are generated on request.

use std::net::IpAddr;

/// More values than any fabric has.
const LARGEST_COUNT: u64 = 1 << 24;

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
            let values: u64 = spans.iter().map(|span| span.count()).fold(0, u64::saturating_add);
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
                let values: u64 = spans.iter().map(|span| span.count()).sum();
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

fn number(spans: &[Span], index: u64) -> (u64, usize) {
    let mut index = index;
    for span in spans {
        if index < span.count() {
            return (span.first + index, span.width);
        }
        index -= span.count();
    }
    (0, 0)
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

/// Patterns one after the other, of one family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressList(pub(super) Vec<AddressPattern>);

impl AddressList {
    /// Values; none when the last one never ends.
    pub fn count(&self) -> Option<usize> {
        self.0.iter().map(AddressPattern::count).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The address at `index`.
    pub fn nth(&self, index: usize) -> Option<IpAddr> {
        let mut index = index;
        for pattern in &self.0 {
            match pattern.count() {
                Some(count) if index >= count => index -= count,
                _ => return pattern.nth(index),
            }
        }
        None
    }
}

/// Names or link addresses, patterns one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameList(pub(super) Vec<Pattern>);

impl NameList {
    /// Values.
    pub fn count(&self) -> usize {
        self.0.iter().map(Pattern::count).sum()
    }

    /// The value at `index`.
    pub fn nth(&self, index: usize) -> Option<String> {
        let mut index = index;
        for pattern in &self.0 {
            if index < pattern.count() {
                return Some(pattern.nth(index));
            }
            index -= pattern.count();
        }
        None
    }
}

#[cfg(test)]
mod tests;
