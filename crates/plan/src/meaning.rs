//! Equality of texts that mean the same to the kernel, although they are spelled
//! differently.

use std::collections::BTreeSet;

use clearstream_schema::{indirection::Indirection, plan::Setting};

use crate::{netfilter, qdisc, routing};

/// Whether a setting that holds `live` matches `wanted`. Vectors are compared
/// number by number, masks and lists as sets of processors; a queueing discipline
/// only by what `wanted` names; routes, rules and nexthops by the meaning of their
/// arguments.
pub fn same(setting: &Setting, wanted: &str, live: &str) -> bool {
    if wanted == live {
        return true;
    }
    match setting {
        Setting::Sysctl(key) => same_as(Form::of_sysctl(key), wanted, live),
        Setting::File(path) => same_as(Form::of_file(path), wanted, live),
        Setting::Qdisc { .. } => qdisc::same(wanted, live),
        Setting::Ethtool { group, .. } if group == "rss" => same_table(wanted, live),
        Setting::Link { .. } | Setting::Ethtool { .. } => same_as(Form::Tokens, wanted, live),
        Setting::Nexthop { .. } | Setting::Route { .. } | Setting::Rule { .. } | Setting::Address { .. } => {
            routing::same(setting, wanted, live)
        }
        Setting::NetfilterTable { .. } => netfilter::same(wanted, live),
    }
}

/// Two texts of one table: runs may be split in any manner.
fn same_table(wanted: &str, live: &str) -> bool {
    match (wanted.parse::<Indirection>(), live.parse::<Indirection>()) {
        (Ok(wanted), Ok(live)) => wanted == live,
        _ => false,
    }
}

/// The same if a setting may be absent, which equals only itself.
pub(crate) fn same_or_absent(setting: &Setting, wanted: Option<&str>, live: Option<&str>) -> bool {
    match (wanted, live) {
        (Some(wanted), Some(live)) => same(setting, wanted, live),
        (None, None) => true,
        _ => false,
    }
}

/// Format of a file's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
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
    fn of_sysctl(key: &str) -> Self {
        match key.rsplit(['.', '/']).next().unwrap_or(key) {
            "rps_default_mask" | "flow_limit_cpu_bitmap" => Self::Mask,
            "ip_local_reserved_ports" => Self::List,
            "tcp_allowed_congestion_control" => Self::Set,
            _ => Self::Tokens,
        }
    }

    fn of_file(path: &str) -> Self {
        match path.rsplit('/').next().unwrap_or(path) {
            "smp_affinity" | "default_smp_affinity" | "rps_cpus" | "xps_cpus" | "xps_rxqs" => Self::Mask,
            "smp_affinity_list" => Self::List,
            _ => Self::Tokens,
        }
    }
}

fn same_as(form: Form, wanted: &str, live: &str) -> bool {
    let by_tokens = || same_tokens(wanted, live);
    match form {
        Form::Tokens => by_tokens(),
        Form::Set => {
            let set = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
            set(wanted) == set(live)
        }
        Form::Mask => match (mask(wanted), mask(live)) {
            (Some(wanted), Some(live)) => wanted == live,
            _ => by_tokens(),
        },
        Form::List => match (list(wanted), list(live)) {
            (Some(wanted), Some(live)) => wanted == live,
            _ => by_tokens(),
        },
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

    fn file(path: &str, wanted: &str, live: &str) -> bool {
        same(&Setting::File(path.to_owned()), wanted, live)
    }

    fn sysctl(key: &str, wanted: &str, live: &str) -> bool {
        same(&Setting::Sysctl(key.to_owned()), wanted, live)
    }

    #[test]
    fn vectors_and_numbers_by_value() {
        assert!(sysctl("net.ipv4.tcp_wmem", "4096 65536  4194304", "4096\t65536\t4194304"));
        assert!(!sysctl("net.ipv4.tcp_wmem", "4096 65536", "4096\t65536\t4194304"));
        assert!(sysctl("net.core.rmem_max", "0212992", "212992"));
        assert!(!sysctl("net.ipv4.tcp_congestion_control", "bbr", "cubic"));
        assert!(sysctl("net.ipv4.ip_local_reserved_ports", "8080,8081,8082", "8080-8082"));
        assert!(sysctl("net.ipv4.tcp_allowed_congestion_control", "cubic reno", "reno cubic"));
    }

    /// Documentation/core-api/cpu_hotplug and `man 7 cpuset`, formats for masks and lists.
    #[test]
    fn masks_and_lists_as_sets() {
        assert!(file("sys/class/net/eth0/queues/rx-0/rps_cpus", "f", "00000000,0000000f"));
        assert!(file("sys/class/net/eth0/queues/rx-0/rps_cpus", "0", "00"));
        assert!(file("proc/irq/9/smp_affinity", "1,00000000", "00000001,00000000"));
        assert!(!file("proc/irq/9/smp_affinity", "1,00000000", "00000000,00000001"));
        assert!(file("proc/irq/9/smp_affinity_list", "0,1,2,3,8", "0-3,8"));
        assert!(!file("proc/irq/9/smp_affinity_list", "0-3", "0-4"));
    }

    #[test]
    fn tables_by_their_entries() {
        let setting = Setting::Ethtool {
            interface: "eth0".to_owned(),
            group: "rss".to_owned(),
            name: "indirection".to_owned(),
        };
        assert!(same(&setting, "0,1,0,1", "equal 2") && same(&setting, "0*2,1*2", "0,0,1,1"));
        assert!(!same(&setting, "equal 2", "equal 4") && !same(&setting, "0*2,1*2", "equal 2"));
    }

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
