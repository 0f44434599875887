//! What netplan refuses a whole file for, beside values of routes and rules: keys that it does not know, values of the
//! wrong kind, and devices that refer to one that is not there (netplan's src/parse.c and src/validation.c).

use std::collections::BTreeSet;

use super::read::refused;
use crate::read::{
    gathering::Gathering,
    values,
    yaml::{Node, Yaml},
};

/// What the value of a key has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Truth,
    Number,
    Text,
    List,
    Map,
}

/// Keys of every kind of device.
const COMMON: &[(&str, Kind)] = &[
    ("accept-ra", Kind::Truth),
    ("activation-mode", Kind::Text),
    ("addresses", Kind::List),
    ("critical", Kind::Truth),
    ("dhcp-identifier", Kind::Text),
    ("dhcp4", Kind::Truth),
    ("dhcp4-overrides", Kind::Map),
    ("dhcp6", Kind::Truth),
    ("dhcp6-overrides", Kind::Map),
    ("gateway4", Kind::Text),
    ("gateway6", Kind::Text),
    ("hairpin", Kind::Truth),
    ("ignore-carrier", Kind::Truth),
    ("ipv6-address-generation", Kind::Text),
    ("ipv6-address-token", Kind::Text),
    ("ipv6-mtu", Kind::Number),
    ("ipv6-privacy", Kind::Truth),
    ("link-local", Kind::List),
    ("macaddress", Kind::Text),
    ("mtu", Kind::Number),
    ("nameservers", Kind::Map),
    ("neigh-suppress", Kind::Truth),
    ("networkmanager", Kind::Map),
    ("openvswitch", Kind::Map),
    ("optional", Kind::Truth),
    ("optional-addresses", Kind::List),
    ("port-mac-learning", Kind::Truth),
    ("ra-overrides", Kind::Map),
    ("renderer", Kind::Text),
    ("routes", Kind::List),
    ("routing-policy", Kind::List),
];

/// Keys of devices that are there before netplan.
const PHYSICAL: &[(&str, Kind)] = &[
    ("auth", Kind::Map),
    ("delay-virtual-functions-rebind", Kind::Truth),
    ("embedded-switch-mode", Kind::Text),
    ("emit-lldp", Kind::Truth),
    ("generic-receive-offload", Kind::Truth),
    ("generic-segmentation-offload", Kind::Truth),
    ("infiniband-mode", Kind::Text),
    ("large-receive-offload", Kind::Truth),
    ("link", Kind::Text),
    ("match", Kind::Map),
    ("receive-checksum-offload", Kind::Truth),
    ("set-name", Kind::Text),
    ("tcp-segmentation-offload", Kind::Truth),
    ("tcp6-segmentation-offload", Kind::Truth),
    ("transmit-checksum-offload", Kind::Truth),
    ("virtual-function-count", Kind::Number),
    ("wakeonlan", Kind::Truth),
    ("wakeonwlan", Kind::List),
];

const PORTS: &[(&str, Kind)] = &[("interfaces", Kind::List), ("parameters", Kind::Map)];

/// Keys of a kind of devices beside the common ones; none of kinds whose keys are not checked.
fn own_keys(kind: &str) -> Option<&'static [(&'static str, Kind)]> {
    match kind {
        "ethernets" => Some(PHYSICAL),
        "bonds" | "bridges" => Some(PORTS),
        "vlans" => Some(&[("id", Kind::Number), ("link", Kind::Text)]),
        "vrfs" => Some(&[("interfaces", Kind::List), ("table", Kind::Number)]),
        "dummy-devices" => Some(&[]),
        "virtual-ethernets" => Some(&[("peer", Kind::Text)]),
        _ => None,
    }
}

/// Checks the devices of a document.
pub(super) fn network(file: &str, network: &Yaml, gathering: &mut Gathering) {
    let renderer = network.get("renderer");
    let mut checked = Checked { file, ids: BTreeSet::new(), is_alone: is_alone(gathering), renderer };
    for (kind, devices) in network.entries() {
        if !matches!(kind.text(), Some("renderer" | "version" | "openvswitch")) {
            checked.ids.extend(devices.entries().iter().filter_map(|(id, _)| id.text()).map(str::to_owned));
        }
    }
    // Patch ports of Open vSwitch are made there.
    for pair in network.get("openvswitch").and_then(|it| it.get("ports")).map(Yaml::items).unwrap_or_default()
    {
        checked.ids.extend(pair.items().iter().filter_map(Yaml::text).map(str::to_owned));
    }
    for (kind, devices) in network.entries() {
        for (id, device) in devices.entries() {
            checked.device(kind.text().unwrap_or_default(), id, device, gathering);
        }
    }
    checked.ports(network, gathering);
}

/// Whether no other file may define devices.
fn is_alone(gathering: &Gathering) -> bool {
    gathering.paths.iter().filter(|path| path.ends_with(".yaml") || path.ends_with(".yml")).count() == 1
}

struct Checked<'a> {
    file: &'a str,
    /// Devices of the document.
    ids: BTreeSet<String>,
    is_alone: bool,
    renderer: Option<&'a Yaml>,
}

impl Checked<'_> {
    fn refuse(&self, at: &Yaml, why: &str, advice: &str, gathering: &mut Gathering) {
        let reason = format!("netplan refuses the whole file: {why}");
        refused(self.file, "file", at, &reason, advice, gathering);
    }

    fn device(&self, kind: &str, id: &Yaml, device: &Yaml, gathering: &mut Gathering) {
        let name = id.text().unwrap_or_default();
        let advice = "see netplan(5)";
        if kind == "vlans" && (device.get("id").is_none() || device.get("link").is_none()) {
            let why = format!("VLAN {name} has no \"id\" or no \"link\"");
            self.refuse(id, &why, advice, gathering);
        }
        if let Some(number) = device.get("id").filter(|_| kind == "vlans")
            && number.text().and_then(values::number::<u32>).is_some_and(|number| number > 4094)
        {
            self.refuse(number, &format!("the id of VLAN {name} is above 4094"), advice, gathering);
        }
        if device.get("set-name").is_some() && device.get("match").is_none() {
            self.refuse(id, &format!("{name} has \"set-name\" without \"match\""), advice, gathering);
        }
        let Some(own) = own_keys(kind) else { return };
        for (key, value) in device.entries() {
            let text = key.text().unwrap_or_default();
            match COMMON.iter().chain(own).find(|(known, _)| *known == text) {
                Some((_, kind)) => self.value(name, text, value, *kind, gathering),
                None => {
                    let why = format!("unknown key \"{text}\" of {name}");
                    self.refuse(key, &why, &nearest(text, own), gathering);
                }
            }
        }
        // NetworkManager may have the device of a VLAN in a profile of its own.
        let is_managed =
            device.get("renderer").or(self.renderer).and_then(Yaml::text) == Some("NetworkManager");
        if let Some(link) = device.get("link").filter(|_| kind == "vlans" && !is_managed) {
            self.reference(name, link, gathering);
        }
        for port in device.get("interfaces").map(Yaml::items).unwrap_or_default() {
            self.reference(name, port, gathering);
        }
    }

    fn value(&self, name: &str, key: &str, value: &Yaml, kind: Kind, gathering: &mut Gathering) {
        // Releases differ in whether a key may have no value.
        let is_nothing = value.text() == Some("");
        let wrong = match (kind, &value.node) {
            _ if is_nothing => return,
            (Kind::List, Node::List(_)) | (Kind::Map, Node::Map(_)) | (Kind::Text, Node::Scalar(_)) => return,
            (Kind::Truth, Node::Scalar(text)) if is_truth(text) => return,
            (Kind::Number, Node::Scalar(text)) if text.parse::<u32>().is_ok() => return,
            (Kind::Truth, _) => "is neither true nor false",
            (Kind::Number, _) => "is no number",
            (Kind::Text, _) => "is no single value",
            (Kind::List, _) => "is no list",
            (Kind::Map, _) => "has no keys below it",
        };
        let advice = match kind {
            Kind::List => "write a list: [...], or a line with \"-\" for each item",
            _ => "see netplan(5)",
        };
        self.refuse(value, &format!("{key} of {name} {wrong}"), advice, gathering);
    }

    /// A device that another one is made of has to be there.
    fn reference(&self, name: &str, to: &Yaml, gathering: &mut Gathering) {
        let id = to.text().unwrap_or_default();
        if self.is_alone && !id.is_empty() && !self.ids.contains(id) {
            let why = format!("{name} is made of {id}, which is not defined");
            let advice = format!("write \"{id}: {{}}\" below \"ethernets:\", or the name of the device");
            self.refuse(to, &why, &advice, gathering);
        }
    }

    /// A device is part of one bond or bridge.
    fn ports(&self, network: &Yaml, gathering: &mut Gathering) {
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        for kind in ["bonds", "bridges"] {
            for (_, device) in network.get(kind).map(Yaml::entries).unwrap_or_default() {
                for port in device.get("interfaces").map(Yaml::items).unwrap_or_default() {
                    let Some(id) = port.text() else { continue };
                    if !taken.insert(id) {
                        let why = format!("{id} is part of two bonds or bridges");
                        self.refuse(port, &why, "take it out of one of them", gathering);
                    }
                }
            }
        }
    }
}

/// What netplan takes as true or false (`handle_generic_bool`): not `1`.
fn is_truth(text: &str) -> bool {
    let known = ["true", "on", "yes", "y", "false", "off", "no", "n"];
    known.contains(&&*text.to_ascii_lowercase())
}

/// The known key that a wrong one is meant to be, as advice.
fn nearest(key: &str, own: &[(&str, Kind)]) -> String {
    let known = COMMON.iter().chain(own).map(|(known, _)| *known);
    let distance = |known: &str| {
        let same = known.chars().zip(key.chars()).take_while(|(one, other)| one == other).count();
        known.len().abs_diff(key.len()) + key.len().saturating_sub(same)
    };
    match known.min_by_key(|known| distance(known)) {
        Some(known) if distance(known) <= key.len() / 2 + 1 => {
            format!("write \"{known}:\", or see netplan(5)")
        }
        _ => "see netplan(5)".to_owned(),
    }
}
