//! What `.network` files refer to: names of tables in `networkd.conf`, VRFs in
//! `.netdev` files, names of interfaces in `.link` files.

use crate::read::{Source, gathering::Gathering, ini, values};

/// `networkd.conf` and its drop-ins: `RouteTable=one:1 two:2` (networkd.conf(5)).
pub(super) fn read_manager(source: &Source, gathering: &mut Gathering) {
    let (sections, _) = ini::sections(&source.text);
    for section in sections.iter().filter(|section| section.name == "Network") {
        gathering.understood();
        for entry in section.entries.iter().filter(|entry| entry.key == "RouteTable") {
            for pair in entry.value.split_whitespace() {
                match pair.rsplit_once(':').and_then(|(name, number)| Some((name, values::number(number)?))) {
                    Some((name, number)) => {
                        gathering.networkd_tables.insert(name.to_owned(), number);
                    }
                    None => gathering.unread(&source.path, entry.line, pair, "no NAME:NUMBER of a table"),
                }
            }
        }
    }
}

/// `.netdev`: the table of a VRF (systemd.netdev(5)).
pub(super) fn read_device(source: &Source, gathering: &mut Gathering) {
    let (sections, _) = ini::sections(&source.text);
    let value = |section: &str, key: &str| {
        let section = sections.iter().find(|known| known.name == section)?;
        section.value(key).map(|entry| entry.value.as_str())
    };
    let Some(name) = value("NetDev", "Name") else { return };
    gathering.understood();
    if value("NetDev", "Kind") == Some("vrf")
        && let Some(table) =
            value("VRF", "Table").or_else(|| value("VRF", "TableId")).and_then(values::number)
    {
        gathering.vrf(name, table);
    }
}

/// `.link`: the name of the interface with a link address (systemd.link(5)).
pub(super) fn read_link(source: &Source, gathering: &mut Gathering) {
    let (sections, _) = ini::sections(&source.text);
    let value = |section: &str, keys: &[&str]| {
        let section = sections.iter().find(|known| known.name == section)?;
        keys.iter().find_map(|key| section.value(key)).map(|entry| entry.value.clone())
    };
    if sections.iter().any(|section| matches!(section.name, "Match" | "Link")) {
        gathering.understood();
    }
    let address = value("Match", &["PermanentMACAddress", "MACAddress"]);
    if let (Some(address), Some(name)) = (address, value("Link", &["Name"])) {
        gathering.by_link_address.insert(address.to_ascii_lowercase(), name);
    }
}
