//! Options of a kernel's configuration (`/boot/config-*`, `/proc/config.gz`)
//! on which routing over several gateways depends, as the kernel's Kconfig
//! files define them (net/ipv4/Kconfig, net/ipv6/Kconfig, net/netfilter/Kconfig).

/// Value of an option in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionValue {
    /// `=y`
    BuiltIn,
    /// `=m`
    Module,
    /// `# CONFIG_X is not set`, or `=n`
    NotSet,
    /// A string, a number, or an invalid value.
    Other(String),
}

/// Parses a line of a configuration: the option's full name and its value.
pub fn read_line(line: &str) -> Option<(String, OptionValue)> {
    // Markdown escapes underscores and adds bullets.
    let line = line.trim().trim_start_matches(['•', '*', '-']).trim().replace("\\_", "_");
    let is_name = |name: &str| {
        name.strip_prefix("CONFIG_").is_some_and(|rest| {
            !rest.is_empty() && rest.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        })
    };
    if let Some(name) = line.strip_prefix('#').and_then(|rest| rest.trim().strip_suffix(" is not set")) {
        return is_name(name).then(|| (name.to_owned(), OptionValue::NotSet));
    }
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let value = match value {
        "y" => OptionValue::BuiltIn,
        "m" => OptionValue::Module,
        "n" => OptionValue::NotSet,
        other => OptionValue::Other(other.to_owned()),
    };
    is_name(name).then(|| (name.to_owned(), value))
}

/// An option of the built-in table.
#[derive(Debug)]
pub(crate) struct KernelOption {
    /// Full name, `CONFIG_IP_MULTIPLE_TABLES`.
    pub(crate) name: &'static str,
    /// Whether it may be a module; otherwise it is built in or absent.
    pub(crate) is_tristate: bool,
    /// Options that it depends on.
    pub(crate) needs: &'static [&'static str],
    /// What a kernel without it lacks; empty where routing does not need it.
    pub(crate) without: &'static str,
}

const fn option(
    name: &'static str,
    is_tristate: bool,
    needs: &'static [&'static str],
    without: &'static str,
) -> KernelOption {
    KernelOption { name, is_tristate, needs, without }
}

/// Options of the gateway paper, and their dependencies.
pub(crate) const KNOWN: &[KernelOption] = &[
    option("CONFIG_INET", false, &["CONFIG_NET"], ""),
    option("CONFIG_IP_MULTICAST", false, &["CONFIG_INET"], ""),
    option(
        "CONFIG_IP_ADVANCED_ROUTER",
        false,
        &["CONFIG_INET"],
        "neither policy routing nor multipath routes of IPv4 can be configured",
    ),
    option("CONFIG_IP_FIB_TRIE_STATS", false, &["CONFIG_IP_ADVANCED_ROUTER"], ""),
    option(
        "CONFIG_IP_MULTIPLE_TABLES",
        false,
        &["CONFIG_IP_ADVANCED_ROUTER"],
        "\"ip rule add\" fails (\"Operation not supported\"), and only table main is used",
    ),
    option(
        "CONFIG_IP_ROUTE_MULTIPATH",
        false,
        &["CONFIG_IP_ADVANCED_ROUTER"],
        "IPv4 routes with several next hops are refused",
    ),
    option("CONFIG_IP_ROUTE_VERBOSE", false, &["CONFIG_IP_ADVANCED_ROUTER"], ""),
    option("CONFIG_IPV6", true, &["CONFIG_INET"], ""),
    option(
        "CONFIG_IPV6_MULTIPLE_TABLES",
        false,
        &["CONFIG_IPV6"],
        "\"ip -6 rule add\" fails, and only table main is used for IPv6",
    ),
    option("CONFIG_NF_CONNTRACK", true, &["CONFIG_NETFILTER"], ""),
    option("CONFIG_NF_CONNTRACK_MARK", false, &["CONFIG_NF_CONNTRACK"], ""),
    option("CONFIG_NF_TABLES", true, &["CONFIG_NETFILTER"], ""),
    option("CONFIG_NFT_CT", true, &["CONFIG_NF_TABLES", "CONFIG_NF_CONNTRACK"], ""),
];

/// Returns the option of a name.
pub(crate) fn known(name: &str) -> Option<&'static KernelOption> {
    KNOWN.iter().find(|option| option.name == name)
}

/// Whether an option with this value is effective: a module counts where it can be one.
pub fn is_set(name: &str, value: &OptionValue) -> bool {
    match value {
        OptionValue::BuiltIn => true,
        OptionValue::Module => known(name).is_none_or(|option| option.is_tristate),
        OptionValue::NotSet | OptionValue::Other(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_configuration() {
        let read = |line: &str| read_line(line).map(|(name, value)| (name.replace("CONFIG_", ""), value));
        assert_eq!(read("CONFIG_IPV6=y"), Some(("IPV6".to_owned(), OptionValue::BuiltIn)));
        assert_eq!(read(" CONFIG_IPV6=m"), Some(("IPV6".to_owned(), OptionValue::Module)));
        assert_eq!(read("# CONFIG_IPV6 is not set"), Some(("IPV6".to_owned(), OptionValue::NotSet)));
        assert_eq!(read("CONFIG_IPV6=n"), Some(("IPV6".to_owned(), OptionValue::NotSet)));
        assert_eq!(
            read("• CONFIG\\_IP\\_MULTICAST=y"),
            Some(("IP_MULTICAST".to_owned(), OptionValue::BuiltIn))
        );
        assert_eq!(read("CONFIG_HZ=250"), Some(("HZ".to_owned(), OptionValue::Other("250".to_owned()))));
        for no in ["# CONFIG_ is not set", "# IP: kernel level", "net.ipv4.tcp_sack = 1", "", "CONFIG_A B=y"]
        {
            assert_eq!(read_line(no), None, "{no}");
        }
    }

    #[test]
    fn a_module_counts_where_kconfig_takes_it() {
        assert!(is_set("CONFIG_NF_TABLES", &OptionValue::Module));
        assert!(!is_set("CONFIG_IP_ROUTE_MULTIPATH", &OptionValue::Module));
        assert!(is_set("CONFIG_VETH", &OptionValue::Module));
    }
}
