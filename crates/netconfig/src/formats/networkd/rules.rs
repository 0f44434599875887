//! `[RoutingPolicyRule]` of `.network` files (systemd.network(5)).

use clearstream_schema::routing::{MAIN_TABLE, RuleAction, RuleEntry, RuleSelector};

use super::read::{File, NO_TABLE, Unfit, unfit};
use crate::read::{
    gathering::{Gathering, place},
    ini::Section,
    ip_arguments, values,
};

impl File<'_> {
    pub(super) fn rule(&self, section: &Section<'_>, gathering: &mut Gathering) -> Result<(), Unfit> {
        let mut rule = RuleEntry {
            ipv6: false,
            priority: None,
            selector: RuleSelector::default(),
            // systemd.network(5): Table= "defaults to main".
            action: RuleAction::Table(MAIN_TABLE),
            protocol: 0,
            place: Some(place(self.path, section.line)),
        };
        let mut families = vec![];
        for entry in &section.entries {
            let value = entry.value.as_str();
            let no = |reason| move || unfit(entry, reason);
            let mut other = |name: &str| rule.selector.other.extend(ip_arguments::rarer(name, value));
            match entry.key {
                "From" | "To" => {
                    let prefix = values::prefix(value).ok_or_else(no("no address or prefix"))?;
                    families = vec![prefix.address.is_ipv6()];
                    let slot =
                        if entry.key == "From" { &mut rule.selector.from } else { &mut rule.selector.to };
                    *slot = (prefix.length > 0).then_some(prefix);
                }
                "FirewallMark" => {
                    rule.selector.mark = Some(ip_arguments::mark(value).ok_or_else(no("no mark"))?);
                }
                "IncomingInterface" => rule.selector.input = Some(value.to_owned()),
                "OutgoingInterface" => rule.selector.output = Some(value.to_owned()),
                "Priority" => rule.priority = Some(values::number(value).ok_or_else(no("no priority"))?),
                "Table" => match gathering.networkd_table(value) {
                    Some(table) => rule.action = RuleAction::Table(table),
                    None => return self.ignored(entry, "rule", NO_TABLE, gathering),
                },
                "L3MasterDevice" if values::truth(value) == Some(true) => {
                    rule.selector.other.push("l3mdev".to_owned());
                }
                "InvertRule" => rule.selector.inverted = values::truth(value) == Some(true),
                "Type" if matches!(value, "blackhole" | "unreachable" | "prohibit") => {
                    rule.action = RuleAction::Other(value.to_owned());
                }
                "Family" if families.is_empty() => {
                    families = match value {
                        "ipv4" => vec![false],
                        "ipv6" => vec![true],
                        "both" => vec![false, true],
                        _ => return Err(unfit(entry, "neither ipv4, ipv6 nor both")),
                    };
                }
                "Family" => {}
                "TypeOfService" => other("tos"),
                "SourcePort" => other("sport"),
                "DestinationPort" => other("dport"),
                "IPProtocol" => other("ipproto"),
                "User" => other("uidrange"),
                "SuppressPrefixLength" => other("suppress_prefixlength"),
                "SuppressInterfaceGroup" => other("suppress_ifgroup"),
                _ => return Err(unfit(entry, "not a key of [RoutingPolicyRule] that is read here")),
            }
        }
        if families.is_empty() {
            families.push(false);
        }
        for ipv6 in families {
            gathering.rule(RuleEntry { ipv6, ..rule.clone() });
        }
        Ok(())
    }

    /// One of which a key is not understood: networkd may make another rule of it than the rest says.
    pub(super) fn open_rule(&self, section: &Section<'_>, text: &str, gathering: &mut Gathering) {
        let value = |key: &str| section.value(key).map(|entry| entry.value.as_str());
        let addresses = [value("From"), value("To")].into_iter().flatten().filter_map(values::prefix);
        let is_ipv6 = value("Family") == Some("ipv6") || addresses.clone().any(|it| it.address.is_ipv6());
        let priority = value("Priority").and_then(values::number);
        gathering.open_rule(place(self.path, section.line), is_ipv6, text, value("Table"), priority);
    }
}
