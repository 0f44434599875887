//! Kernel configuration: values that Kconfig rejects, unmet dependencies, and
//! options missing for routes over several gateways.

use clearstream_configfile::nearest;
use clearstream_schema::tune::{Finding, FindingClass, Severity};

use super::{Facts, With};
use crate::{
    kernel_config::{self, KNOWN, KernelOption, OptionValue, is_set},
    state::GivenOption,
};

/// Minimum number of options of a complete configuration. With fewer it is an
/// excerpt, in which a missing option is unknown.
const COMPLETE_COUNT: usize = 300;

pub(super) fn options(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let given = &facts.state.options;
    for (name, option) in given {
        match kernel_config::known(name) {
            Some(known) => found.extend(of_known(facts, known, option)),
            None if given.len() < COMPLETE_COUNT => found.extend(misspelt(name, option)),
            None => {}
        }
    }
    // In a complete configuration a missing option is not set.
    if given.len() >= COMPLETE_COUNT {
        let absent = KNOWN.iter().filter(|known| !given.contains_key(known.name));
        found.extend(
            absent.filter(|known| !facts.lacks_all(known.needs)).filter_map(|known| not_set(known, None)),
        );
    }
}

impl Facts<'_> {
    /// Whether an option is set; unknown in an excerpt.
    fn is_option_set(&self, name: &str) -> Option<bool> {
        match self.state.options.get(name) {
            Some(option) => Some(is_set(name, &option.value)),
            None => (self.state.options.len() >= COMPLETE_COUNT).then_some(false),
        }
    }

    /// Whether none of some options is set, so that their dependents need no finding.
    fn lacks_all(&self, names: &[&str]) -> bool {
        !names.is_empty() && names.iter().all(|name| self.is_option_set(name) == Some(false))
    }
}

fn of_known(facts: &Facts<'_>, known: &KernelOption, given: &GivenOption) -> Option<Finding> {
    match &given.value {
        OptionValue::NotSet if facts.lacks_all(known.needs) => None,
        OptionValue::NotSet => not_set(known, Some(given)),
        OptionValue::Module if !known.is_tristate => {
            let message = "it is built in or absent, never a module: the kernel's configuration ignores this value \
                           and leaves the option out";
            Some(
                finding(known.name, Some(given), FindingClass::Range, "no-module", Severity::Error, message)
                    .advise(format!("write {}=y", known.name)),
            )
        }
        OptionValue::Other(value) => {
            let message =
                format!("\"{value}\" is no value of it: the kernel's configuration leaves the option out");
            Some(
                finding(known.name, Some(given), FindingClass::Range, "no-value", Severity::Error, &message)
                    .advise(format!("write {}=y", known.name)),
            )
        }
        OptionValue::BuiltIn | OptionValue::Module => {
            let lacking = known.needs.iter().find(|need| facts.is_option_set(need) == Some(false))?;
            let message =
                format!("it needs {lacking}, which is not set: the kernel's configuration drops it");
            Some(
                finding(
                    known.name,
                    Some(given),
                    FindingClass::Contradiction,
                    "needs-another",
                    Severity::Error,
                    &message,
                )
                .advise(format!("set {lacking} too")),
            )
        }
    }
}

fn not_set(known: &KernelOption, given: Option<&GivenOption>) -> Option<Finding> {
    if known.without.is_empty() {
        return None;
    }
    let message = format!("not set: {}", known.without);
    Some(
        finding(known.name, given, FindingClass::Routing, "not-set", Severity::Note, &message)
            .advise(format!("where routes go over several gateways, set {}=y", known.name)),
    )
}

/// A name that differs from a known one by a letter or two.
fn misspelt(name: &str, given: &GivenOption) -> Option<Finding> {
    let meant = nearest(name, KNOWN.iter().map(|known| known.name))?;
    let message = format!("{name} is no option that is known here; {meant} is probably meant");
    Some(
        finding(name, Some(given), FindingClass::Unknown, "misspelt", Severity::Warning, &message)
            .advise(format!("write {meant}")),
    )
}

fn finding(
    name: &str,
    given: Option<&GivenOption>,
    class: FindingClass,
    cause: &str,
    severity: Severity,
    message: &str,
) -> Finding {
    let text = |value: &OptionValue| match value {
        OptionValue::BuiltIn => "y".to_owned(),
        OptionValue::Module => "m".to_owned(),
        OptionValue::NotSet => "n".to_owned(),
        OptionValue::Other(text) => text.clone(),
    };
    Finding {
        value: given.map(|given| text(&given.value)),
        place: given.map(|given| given.place.clone()),
        ..super::finding(name, class, cause, severity, message.to_owned())
    }
    .sourced("net/ipv4/Kconfig, net/ipv6/Kconfig, net/netfilter/Kconfig")
}

#[cfg(test)]
mod tests {
    use clearstream_lint::MuteList;

    use crate::{Assumed, HostState, lint};

    fn ids(text: &str) -> Vec<String> {
        let state = HostState::of_file("config", text, Assumed::default());
        let report = lint(&state, None, &MuteList::default());
        assert!(report.findings.iter().all(|it| it.id.parse::<MuteList>().is_ok() && it.advice.is_some()));
        report
            .findings
            .iter()
            .map(|it| format!("{}@{}", it.id, it.place.as_ref().map_or(0, |it| it.line)))
            .collect()
    }

    /// As printed in the gateway paper.
    #[test]
    fn the_options_of_the_paper_are_right() {
        let list = "CONFIG_IP_MULTICAST=y\nCONFIG_IP_ADVANCED_ROUTER=y\nCONFIG_IP_MULTIPLE_TABLES=y\n\
                    CONFIG_IP_ROUTE_MULTIPATH=y\nCONFIG_IP_ROUTE_VERBOSE=y\nCONFIG_IP_FIB_TRIE_STATS=y\n";
        assert_eq!(ids(list), Vec::<String>::new());
        assert_eq!(ids(&list.replace('_', "\\_")), Vec::<String>::new());
        assert_eq!(ids(&format!("net.ipv4.tcp_sack = 1\n{list}")), Vec::<String>::new());
    }

    #[test]
    fn what_kconfig_does_not_take() {
        assert_eq!(ids("CONFIG_IP_ROUTE_MULTIPATH=m\n"), ["CONFIG_IP_ROUTE_MULTIPATH:range:no-module@1"]);
        assert_eq!(ids("CONFIG_NF_TABLES=m\n"), Vec::<String>::new());
        assert_eq!(ids("CONFIG_IP_ROUTE_MULTIPATH=yes\n"), ["CONFIG_IP_ROUTE_MULTIPATH:range:no-value@1"]);
        assert_eq!(
            ids("# CONFIG_IP_ADVANCED_ROUTER is not set\nCONFIG_IP_MULTIPLE_TABLES=y\n"),
            [
                "CONFIG_IP_MULTIPLE_TABLES:contradiction:needs-another@2",
                "CONFIG_IP_ADVANCED_ROUTER:routing:not-set@1"
            ]
        );
        assert_eq!(ids("CONFIG_IP_MULTIPLE_TABLE=y\n"), ["CONFIG_IP_MULTIPLE_TABLE:unknown:misspelt@1"]);
        assert_eq!(
            ids("# CONFIG_IP_MULTIPLE_TABLES is not set\n"),
            ["CONFIG_IP_MULTIPLE_TABLES:routing:not-set@1"]
        );
    }

    /// In a complete configuration a missing option is not set.
    #[test]
    fn a_whole_configuration() {
        let others: String = (0..400).map(|at| format!("CONFIG_DRIVER_{at}=m\n")).collect();
        let router =
            "CONFIG_NET=y\nCONFIG_INET=y\nCONFIG_IP_ADVANCED_ROUTER=y\nCONFIG_IP_MULTIPLE_TABLES=y\n";
        assert_eq!(ids(&format!("{others}{router}")), ["CONFIG_IP_ROUTE_MULTIPATH:routing:not-set@0"]);
        let no_router =
            "CONFIG_NET=y\nCONFIG_INET=y\n# CONFIG_IP_ADVANCED_ROUTER is not set\nCONFIG_IPV6=m\n";
        assert_eq!(
            ids(&format!("{others}{no_router}")),
            [
                "CONFIG_IPV6_MULTIPLE_TABLES:routing:not-set@0",
                "CONFIG_IP_ADVANCED_ROUTER:routing:not-set@403"
            ]
        );
    }
}
