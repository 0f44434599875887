//! Size of the neighbour tables: the kernel has one for each family, with a limit for all
//! interfaces together (ip-sysctl.rst, `neigh/default/gc_thresh1` to `3`; arp(7)).

use super::host::Draft;
use crate::fabric::HostId;

/// Entries above which the kernel removes those that are older than five seconds
/// (`gc_thresh2` as it comes; the limit, `gc_thresh3`, is twice that).
const USUAL_COUNT: usize = 512;

/// Sysctls for a host whose links have more neighbours than the kernel's tables are for.
pub(super) fn tables(draft: &Draft<'_, '_>) -> Vec<(String, String, String)> {
    let mut sysctls = Vec::new();
    for ipv6 in [false, true] {
        let count = entries(draft, ipv6);
        if count <= USUAL_COUNT {
            continue;
        }
        let family = if ipv6 { "ipv6" } else { "ipv4" };
        // All of them stay, with room for others, and the limit is far above.
        let kept = (count + count / 4).next_power_of_two();
        for (number, value) in [(1, kept), (2, 2 * kept), (3, 4 * kept)] {
            let why = format!(
                "its links have {count} neighbours' addresses: above gc_thresh3 (1024 as it comes) the kernel refuses new \
                 ones, and packets to them are lost; of all interfaces of the machine together"
            );
            sysctls.push((format!("net.{family}.neigh.default.gc_thresh{number}"), value.to_string(), why));
        }
    }
    sysctls
}

/// Addresses that the host may have as neighbours; of IPv6, each host has one for the link too.
fn entries(draft: &Draft<'_, '_>, ipv6: bool) -> usize {
    let fabric = draft.planner.fabric;
    let links = 0..fabric.class(draft.host).links.len();
    let networks = links.map(|link| fabric.link_network(draft.host, link));
    let of_class = |network: usize, class: usize| {
        let first = HostId { class, index: 0 };
        let Some(link) = fabric.link_on(first, network) else { return 0 };
        let own = usize::from(fabric.address(first, link, ipv6).is_some());
        let each = (own + fabric.aliases(first, link, ipv6).len()) * if ipv6 { 2 } else { 1 };
        each * fabric.class_count(class)
    };
    networks
        .map(|network| fabric.classes_on(network).map(|class| of_class(network, class)).sum::<usize>())
        .sum()
}

#[cfg(test)]
mod tests {
    use crate::{fabric, planner::Planner};

    /// Neighbour tables of the kernel hold 1024 entries as they come.
    #[test]
    fn neighbour_tables_are_for_the_hosts_of_a_link() {
        let link = |network: &str, v4: &str, v6: &str| {
            format!(
                "[[class.link]]\nnetwork = \"{network}\"\ninterface = \"{network}\"\naddresses = [\"{v4}\", \"{v6}\"]\n"
            )
        };
        for (count, ipv4, ipv6) in [
            (128, None, None),
            (300, None, Some("1024")),
            (1024, Some("2048"), Some("4096")),
            (10_000, Some("16384"), Some("32768")),
        ] {
            let text = format!(
                "schema = \"clearstream.fabric\"\nversion = 1\nname = \"many\"\n\
                 [[network]]\nname = \"near\"\nprefixes = [\"10.0.0.0/16\", \"fd00::/64\"]\n\
                 [[network]]\nname = \"far\"\nprefixes = [\"10.9.0.0/24\", \"fd09::/64\"]\n\
                 [[class]]\nname = \"gateway\"\nrole = \"gateway\"\nhosts = [\"gw\"]\n{}{}\
                 [[class]]\nname = \"compute\"\nrole = \"compute\"\nhosts = [\"c[1-{count}]\"]\n{}\
                 [[class]]\nname = \"storage\"\nrole = \"storage\"\nhosts = [\"s\"]\n{}\
                 [[route]]\nbetween = [\"near\", \"far\"]\nvia = [\"gateway\"]\n",
                link("near", "10.0.254.254", "fd00::ffff"),
                link("far", "10.9.0.254", "fd09::ffff"),
                link("near", "10.0.1.1+", "fd00::1+"),
                link("far", "10.9.0.1", "fd09::1"),
            );
            let fabric = fabric::parse(std::path::Path::new("many.toml"), &text).unwrap();
            let planner = Planner::new(&fabric);
            let value = |host: &str, family: &str| {
                let routing = planner.routing(fabric.find(host).unwrap());
                let key = format!("net.{family}.neigh.default.gc_thresh1");
                routing.sysctls.get(&key).map(|value| value.value.clone())
            };
            for host in ["gw", "c1"] {
                let found = [value(host, "ipv4"), value(host, "ipv6")];
                assert_eq!(found, [ipv4, ipv6].map(|it| it.map(str::to_owned)), "{host} of {count}");
            }
            assert_eq!([value("s", "ipv4"), value("s", "ipv6")], [None, None], "{count}: two neighbours");
        }
    }
}
