//! Texts of the kernel's files that mean the same, although they are spelled differently.

use std::collections::BTreeSet;

use clearstream_schema::plan::Value;

/// Format of a file's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Tokens and numbers between blanks.
    Tokens,
    /// Tokens in any order.
    Set,
    /// Hexadecimal words of 32 bits, the highest first (cpumask).
    Mask,
    /// Numbers and ranges, `0-3,8`.
    List,
}

impl Form {
    /// Whether both texts mean the same.
    pub(crate) fn is_same(self, wanted: &Value, live: &Value) -> bool {
        let (wanted, live) = (&*wanted.to_string(), &*live.to_string());
        let by_tokens = || same_tokens(wanted, live);
        match self {
            Self::Tokens => by_tokens(),
            Self::Set => {
                let set = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
                set(wanted) == set(live)
            }
            Self::Mask => match (mask(wanted), mask(live)) {
                (Some(wanted), Some(live)) => wanted == live,
                _ => by_tokens(),
            },
            Self::List => match (list(wanted), list(live)) {
                (Some(wanted), Some(live)) => wanted == live,
                _ => by_tokens(),
            },
        }
    }
}

fn same_tokens(wanted: &str, live: &str) -> bool {
    let number = |token: &str| token.parse::<i128>().ok();
    let same = |(wanted, live): (&str, &str)| {
        wanted == live || number(wanted).is_some_and(|wanted| number(live) == Some(wanted))
    };
    let (wanted, live): (Vec<_>, Vec<_>) =
        (wanted.split_whitespace().collect(), live.split_whitespace().collect());
    wanted.len() == live.len() && wanted.into_iter().zip(live).all(same)
}

/// The text of a file in one spelling: no line end, single blanks, of a choice
/// (`always [madvise] never`) the chosen token.
pub(crate) fn plain(text: &str) -> String {
    let tokens: Vec<&str> = text.split_whitespace().collect();
    let chosen: Vec<&str> =
        tokens.iter().filter_map(|token| token.strip_prefix('[')?.strip_suffix(']')).collect();
    match chosen.as_slice() {
        [chosen] if tokens.len() > 1 => (*chosen).to_owned(),
        _ => tokens.join(" "),
    }
}

/// Bits of a mask as cpumask_parse (lib/bitmap-str.c) reads it, without
/// leading zeroes: hexadecimal digits, a comma between groups of at most 32 bits.
fn mask(text: &str) -> Option<String> {
    let groups: Vec<&str> = text.trim().split(',').collect();
    let mut digits = String::new();
    for (index, group) in groups.iter().enumerate() {
        let group = group.trim().trim_start_matches("0x");
        if group.is_empty() || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        if index > 0 && group.len() < 8 {
            digits.extend(std::iter::repeat_n('0', 8 - group.len()));
        }
        digits.push_str(&group.to_ascii_lowercase());
    }
    Some(digits.trim_start_matches('0').to_owned())
}

/// Members of a list of numbers and ranges; at most the 65536 that ports need.
fn list(text: &str) -> Option<BTreeSet<u32>> {
    let mut members = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last > 0xffff {
            return None;
        }
        members.extend(first..=last);
    }
    Some(members)
}

/// Whether the processors of `inner` are some of those of `outer`, both lists
/// or both masks.
pub(crate) fn is_within(inner: &str, outer: &str, are_lists: bool) -> bool {
    let members = |text: &str| if are_lists { list(text) } else { mask(text).map(|digits| bits(&digits)) };
    match (members(inner), members(outer)) {
        (Some(inner), Some(outer)) => !inner.is_empty() && inner.is_subset(&outer),
        _ => false,
    }
}

/// Numbers of the bits that are set in hexadecimal digits.
fn bits(digits: &str) -> BTreeSet<u32> {
    let digit = |(place, letter): (usize, char)| {
        let value = letter.to_digit(16).unwrap_or(0);
        (0..4).filter(move |bit| value >> bit & 1 == 1).map(move |bit| place as u32 * 4 + bit)
    };
    digits.chars().rev().enumerate().flat_map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_masks_and_lists() {
        assert!(is_within("2", "0-3", true) && !is_within("4", "0-3", true) && !is_within("", "0-3", true));
        assert!(is_within("1,00000000", "3,0000000f", false) && !is_within("10", "f", false));
    }

    #[test]
    fn a_choice_is_its_chosen_token() {
        assert_eq!(plain("always [madvise] never\n"), "madvise");
        assert_eq!(plain("4096\t131072\t33554432\n"), "4096 131072 33554432");
        assert_eq!(plain("[fe80::1]\n"), "[fe80::1]");
    }
}
