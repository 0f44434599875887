use std::process::Command;

use proptest::prelude::*;

use super::*;

fn all(text: &str, radix: u32) -> Vec<String> {
    let pattern = Pattern::read(text, radix).unwrap();
    (0..pattern.count()).map(|index| pattern.nth(index)).collect()
}

#[test]
fn brackets_count_and_the_last_counts_fastest() {
    assert_eq!(all("sn[1-3]", 10), ["sn1", "sn2", "sn3"]);
    assert_eq!(all("compute-[0009-0011]", 10), ["compute-0009", "compute-0010", "compute-0011"]);
    assert_eq!(all("r[1-2]n[09-10]", 10), ["r1n09", "r1n10", "r2n09", "r2n10"]);
    assert_eq!(all("n[1-2,7]x", 10), ["n1x", "n2x", "n7x"]);
    assert_eq!(all("plain", 10), ["plain"]);
    assert_eq!(all("fd64::[9-b]", 16), ["fd64::9", "fd64::a", "fd64::b"]);
    assert_eq!(all("02:00:00:00:00:[0f-10]", 16), ["02:00:00:00:00:0f", "02:00:00:00:00:10"]);
}

#[test]
fn addresses_count_by_brackets_or_from_a_start() {
    let pattern = AddressPattern::read("10.100.[16-17].[1-254]").unwrap();
    assert_eq!(pattern.count(), Some(508));
    assert_eq!(pattern.nth(254).unwrap().to_string(), "10.100.17.1");
    let pattern = AddressPattern::read("10.100.16.250+").unwrap();
    assert_eq!(pattern.nth(6).unwrap().to_string(), "10.100.17.0");
    let pattern = AddressPattern::read("fd64::fffe+").unwrap();
    assert_eq!(pattern.nth(2).unwrap().to_string(), "fd64::1:0");
    assert_eq!(AddressPattern::read("255.255.255.255+").unwrap().nth(1), None);
}

#[test]
fn invalid_patterns_are_rejected_with_a_suggestion() {
    for (text, expected) in [
        ("a[1-", "without its ]"),
        ("a1-2]", "without its ["),
        ("a[2-1]", "counts down"),
        ("a[x]", "no range"),
        ("a[]", "no range"),
        ("a[+1-2]", "no range"),
        ("a[1-99999999999]", "no range"),
        ("a[1-90000000]", "more than"),
        ("a[1-9999][1-9999]", "more than"),
    ] {
        let problem = Pattern::read(text, 10).unwrap_err();
        assert!(problem.contains(expected), "{text}: {problem}");
    }
    for (text, expected) in [
        ("10.0.0.[1-300]", "(10.0.0.300)"),
        ("10.0.0.1/24", "prefix length"),
        ("10.0.0", "no address pattern"),
        ("10.0.0.x+", "no address pattern"),
    ] {
        let problem = AddressPattern::read(text).unwrap_err();
        assert!(problem.contains(expected), "{text}: {problem}");
    }
}

/// The shell expands `{0009..0011}` identically: same order, same leading zeros.
#[test]
fn expands_as_the_shell_does() {
    for (pattern, shell) in [
        ("compute-[0009-0011]", "compute-{0009..0011}"),
        ("r[1-3]n[08-12]", "r{1..3}n{08..12}"),
        ("a[1-12]", "a{1..12}"),
    ] {
        let output = Command::new("bash").args(["-c", &format!("echo {shell}")]).output().unwrap();
        let expected = String::from_utf8(output.stdout).unwrap();
        assert_eq!(all(pattern, 10).join(" "), expected.trim());
    }
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(text in "[a\\[\\]0-9,+:.-]{0,24}") {
        for radix in [10, 16] {
            if let Ok(pattern) = Pattern::read(&text, radix) {
                pattern.nth(0);
                pattern.nth(pattern.count().saturating_sub(1));
            }
        }
        if let Ok(pattern) = AddressPattern::read(&text) {
            pattern.nth(0);
        }
    }

    #[test]
    fn every_value_is_there_once(first in 0u32..500, more in 0u32..60, other in 1u32..40) {
        let values = all(&format!("n[{first}-{}]x[1-{other}]", first + more), 10);
        prop_assert_eq!(values.len(), ((more + 1) * other) as usize);
        let mut distinct = values.clone();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), values.len());
        let middle = values.len() / 2;
        let (row, column) = (middle as u32 / other, middle as u32 % other);
        prop_assert_eq!(&values[middle], &format!("n{}x{}", first + row, column + 1));
    }
}
