//! Device features from the kernel's bit sets, with the group names of `ethtool -k` added.

use std::collections::BTreeMap;

use super::message::attributes;

/// `ETHTOOL_A_FEATURES_HW` and `_ACTIVE`.
const CHANGEABLE: u16 = 2;
const ACTIVE: u16 = 4;
/// `ETHTOOL_A_BITSET_BITS`, `ETHTOOL_A_BITSET_BITS_BIT`, `ETHTOOL_A_BITSET_BIT_NAME`.
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;

/// Groups as ethtool prints them: on when any member is on. Members end in `*`
/// where ethtool matches a prefix.
const GROUPS: &[(&str, &[&str])] = &[
    ("rx-checksumming", &["rx-checksum"]),
    ("tx-checksumming", &["tx-checksum-*"]),
    ("scatter-gather", &["tx-scatter-gather", "tx-scatter-gather-fraglist"]),
    (
        "tcp-segmentation-offload",
        &[
            "tx-tcp-segmentation",
            "tx-tcp-ecn-segmentation",
            "tx-tcp-mangleid-segmentation",
            "tx-tcp6-segmentation",
            "tx-tcp-accecn-segmentation",
        ],
    ),
    ("generic-segmentation-offload", &["tx-generic-segmentation"]),
    ("generic-receive-offload", &["rx-gro"]),
    ("large-receive-offload", &["rx-lro"]),
    ("rx-vlan-offload", &["rx-vlan-hw-parse"]),
    ("tx-vlan-offload", &["tx-vlan-hw-insert"]),
    ("ntuple-filters", &["rx-ntuple-filter"]),
    ("receive-hashing", &["rx-hashing"]),
];

/// The kernel's name of a feature; ethtool's name of a group with one member is accepted, too. A group of
/// several cannot be set as one, since its members may differ before.
pub(super) fn single(name: &str) -> Result<&str, String> {
    match GROUPS.iter().find(|(group, _)| *group == name) {
        None => Ok(name),
        Some((_, [only])) if !only.ends_with('*') => Ok(only),
        Some((_, members)) => Err(format!("{name} is several features, name one: {}", members.join(", "))),
    }
}

/// The state of every feature that can be changed.
pub(super) fn read(body: &[u8]) -> BTreeMap<String, bool> {
    let mut features = BTreeMap::new();
    // The set of changeable features carries a mask of all names; the active
    // set lists only what is on. The kernel sends them in this order.
    for (kind, set) in attributes(body) {
        match kind {
            CHANGEABLE => features.extend(names(set).map(|name| (name, false))),
            ACTIVE => {
                for name in names(set) {
                    features.entry(name).and_modify(|on| *on = true);
                }
            }
            _ => {}
        }
    }
    with_groups(features)
}

/// Adds the groups of ethtool.
pub(super) fn with_groups(mut features: BTreeMap<String, bool>) -> BTreeMap<String, bool> {
    let groups: Vec<(String, bool)> = GROUPS
        .iter()
        .filter_map(|(group, members)| {
            let mut of_group = features.iter().filter(|(name, _)| belongs(name, members)).peekable();
            of_group.peek()?;
            Some(((*group).to_owned(), of_group.any(|(_, on)| *on)))
        })
        .collect();
    features.extend(groups);
    features
}

fn belongs(name: &str, members: &[&str]) -> bool {
    members.iter().any(|member| match member.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *member,
    })
}

/// Names listed in a bit set.
fn names(set: &[u8]) -> impl Iterator<Item = String> {
    attributes(set)
        .filter(|(kind, _)| *kind == BITS)
        .flat_map(|(_, bits)| attributes(bits))
        .filter(|(kind, _)| *kind == BIT)
        .filter_map(|(_, bit)| {
            let (_, name) = attributes(bit).find(|(kind, _)| *kind == BIT_NAME)?;
            let name = name.strip_suffix(&[0]).unwrap_or(name);
            Some(String::from_utf8_lossy(name).into_owned())
        })
        // Bits of features that the kernel dropped have no name.
        .filter(|name| !name.is_empty())
}
