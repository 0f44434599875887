//! Names and addresses written short: `gw[1-6]`, `10.10.0.[11-16]`.

use std::net::IpAddr;

/// Names in their order; neighbours that differ in their last number, which
/// counts up by one, become one pattern.
pub(super) fn names(names: &[String]) -> Vec<String> {
    runs(names, false, |name| {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, number) = name.split_at(name.len() - digits);
        Some((stem.to_owned(), number.parse().ok()?, number.len()))
    })
}

/// Addresses in their order; the last part counts up, of IPv6 in hexadecimal.
pub(super) fn addresses(addresses: &[IpAddr]) -> Vec<String> {
    let written: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    if addresses.iter().all(IpAddr::is_ipv4) {
        return runs(&written, false, |text| {
            let (stem, last) = text.rsplit_once('.')?;
            Some((format!("{stem}."), last.parse().ok()?, 1))
        });
    }
    if addresses.iter().all(IpAddr::is_ipv6) {
        return runs(&written, true, |text| {
            let (stem, last) = text.rsplit_once(':')?;
            Some((format!("{stem}:"), u64::from_str_radix(last, 16).ok()?, 1))
        });
    }
    written
}

/// Joins texts whose number counts up behind one stem. Numbers with leading
/// zeros join those of the same width.
fn runs(
    texts: &[String],
    is_hexadecimal: bool,
    divide: impl Fn(&str) -> Option<(String, u64, usize)>,
) -> Vec<String> {
    let mut written = Vec::new();
    let mut at = 0;
    while at < texts.len() {
        let Some((stem, first, width)) = divide(&texts[at]) else {
            written.push(texts[at].clone());
            at += 1;
            continue;
        };
        let mut end = at + 1;
        let mut last = first;
        while let Some((other, number, its_width)) = texts.get(end).and_then(|text| divide(text)) {
            let is_written_so = its_width == width || its_width == written_width(number, width);
            if other != stem || number != last + 1 || !is_written_so {
                break;
            }
            last = number;
            end += 1;
        }
        if end - at > 1 {
            written.push(match is_hexadecimal {
                true => format!("{stem}[{first:x}-{last:x}]"),
                false => format!("{stem}[{first:0width$}-{last:0width$}]"),
            });
        } else {
            written.push(texts[at].clone());
        }
        at = end;
    }
    written
}

/// Digits of a number that is written with at least `width`.
fn written_width(number: u64, width: usize) -> usize {
    format!("{number:0width$}").len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_up_is_one_pattern() {
        let text = |list: &[&str]| names(&list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(text(&["gw1", "gw2", "gw3"]), ["gw[1-3]"]);
        assert_eq!(text(&["n08", "n09", "n10"]), ["n[08-10]"]);
        assert_eq!(text(&["n9", "n10", "n12"]), ["n[9-10]", "n12"]);
        assert_eq!(text(&["login", "login"]), ["login", "login"]);
        let list = |list: &[&str]| addresses(&list.iter().map(|it| it.parse().unwrap()).collect::<Vec<_>>());
        assert_eq!(list(&["10.10.0.9", "10.10.0.10", "10.10.0.12"]), ["10.10.0.[9-10]", "10.10.0.12"]);
        assert_eq!(list(&["fd00::9", "fd00::a", "fd00::c"]), ["fd00::[9-a]", "fd00::c"]);
        assert_eq!(list(&["fd00::ffff", "fd00::1:0"]), ["fd00::ffff", "fd00::1:0"]);
    }
}
