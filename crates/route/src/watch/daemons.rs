//! Configurations of daemons that can do part of the same by other means: BIRD
//! (routes by BFD sessions, on every host) and keepalived (gateways that take
//! over each other's addresses, without anything on the other hosts). Neither
//! sees a gateway that answers and forwards nothing; the watch does.

use std::{fmt::Write as _, net::IpAddr};

use clearstream_schema::{fabric::HostRole, watch::Family};

use super::{
    WatchError,
    packet::fabric_number,
    setup::{WatchedWay, end_classes, ways},
};
use crate::fabric::{Fabric, Gateway, HostId};

/// Most gateways that VRRP can number on one network (RFC 9568, section 5.2.3).
const MOST_ROUTERS: usize = 255;

/// A configuration of BIRD 2: BFD sessions between hosts and gateways, and on the
/// hosts at the ends the routes, each next hop as long as its session is up. It
/// stands in for the multipath routes of the plan; as further evidence for the
/// watch (`--bfd bird`) its last two kinds of protocols are left out by hand.
pub fn bird(fabric: &Fabric, host: HostId) -> Result<String, WatchError> {
    let name = fabric.host_name(host);
    let ways = ways(fabric, host);
    let mut text = format!("# BIRD 2: {name} of the fabric {}\n", fabric.name());
    let own = (0..fabric.class(host).links.len()).find_map(|link| fabric.address(host, link, false));
    // A number that must differ from host to host; an address where there is one.
    let own = own.unwrap_or_else(|| IpAddr::from((fabric_number(&name) as u32 | 1).to_be_bytes()));
    let _ = writeln!(text, "router id {own};\n\nprotocol device {{\n}}\n\nprotocol bfd {{");
    let neighbours = neighbours(fabric, host, &ways);
    if neighbours.is_empty() {
        return Err(WatchError::NothingToWatch { host: name, fabric: fabric.name().to_owned() });
    }
    let mut interfaces: Vec<&str> = neighbours.iter().map(|(interface, _)| *interface).collect();
    interfaces.dedup();
    for interface in interfaces {
        let _ = writeln!(text, "\tinterface \"{interface}\" {{ interval 100 ms; multiplier 3; }};");
    }
    for (interface, address) in &neighbours {
        let _ = writeln!(text, "\tneighbor {address} dev \"{interface}\";");
    }
    text.push_str("}\n");
    for way in &ways {
        let _ = write!(text, "\n{}", static_routes(way));
    }
    for (family, channel) in [(Family::Ipv4, "ipv4"), (Family::Ipv6, "ipv6")] {
        if ways.iter().any(|way| way.way.family == family) {
            let _ = writeln!(
                text,
                "\nprotocol kernel {{\n\tmerge paths on;\n\t{channel} {{ import none; export where source = RTS_STATIC; }};\n}}"
            );
        }
    }
    Ok(text)
}

/// With whom a host has sessions: with its gateways, or with all hosts at the
/// ends. BIRD answers nobody that it was not told of.
fn neighbours<'a>(fabric: &'a Fabric, host: HostId, ways: &'a [WatchedWay]) -> Vec<(&'a str, IpAddr)> {
    if fabric.class(host).role != HostRole::Gateway {
        let of = |way: &'a WatchedWay| {
            way.gateways.iter().map(move |gateway| (way.interface.as_str(), gateway.near))
        };
        return ways.iter().flat_map(of).collect();
    }
    let mut found = Vec::new();
    for (link, at) in fabric.class(host).links.iter().enumerate() {
        let network = fabric.link_network(host, link);
        for class in end_classes(fabric, network) {
            for other in fabric.class_hosts(class) {
                let Some(link) = fabric.link_on(other, network) else { continue };
                let addresses =
                    [false, true].into_iter().filter_map(|ipv6| fabric.address(other, link, ipv6));
                found.extend(addresses.map(|address| (at.interface.as_str(), address)));
            }
        }
    }
    found
}

fn static_routes(way: &WatchedWay) -> String {
    let family = way.way.family.to_string().to_lowercase();
    let network: String = way
        .way
        .network
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
        .collect();
    let mut text = format!("protocol static fabric_{network}_{family} {{\n\t{family};\n");
    for prefix in &way.far {
        let _ = write!(text, "\troute {}", prefix.network());
        for gateway in &way.gateways {
            let weight =
                if gateway.weight == 1 { String::new() } else { format!(" weight {}", gateway.weight) };
            let _ = write!(text, "\n\t\tvia {} bfd{weight}", gateway.near);
        }
        text.push_str(";\n");
    }
    text.push_str("}\n");
    text
}

/// A configuration of keepalived for a gateway: each gateway's addresses of the
/// fabric are virtual (VRRPv3), and the next gateway takes both sides over when
/// one of them fails. The interfaces need addresses of their own besides.
pub fn keepalived(fabric: &Fabric, host: HostId) -> Result<String, WatchError> {
    let name = fabric.host_name(host);
    let unfit = |why: &str| WatchError::NoConfiguration { host: name.clone(), why: why.to_owned() };
    let gateways: Vec<&Gateway> =
        fabric.gateways().iter().filter(|gateway| gateway.host.class == host.class).collect();
    let Some(own) = gateways.iter().position(|gateway| gateway.host == host) else {
        return Err(unfit("keepalived runs on gateways, and this is none"));
    };
    if gateways.len() > MOST_ROUTERS {
        return Err(unfit("VRRP numbers at most 255 gateways on a network"));
    }
    let mut text = format!(
        "# keepalived: {name} of the fabric {}\n\
         # The interfaces need addresses of their own besides those below, which move.\n\
         global_defs {{\n\trouter_id {name}\n\tvrrp_version 3\n}}\n",
        fabric.name()
    );
    let before = (own + gateways.len() - 1) % gateways.len();
    let mut roles = vec![(own, "MASTER", 200)];
    if before != own {
        roles.push((before, "BACKUP", 100));
    }
    for (place, state, priority) in roles {
        let gateway = gateways[place];
        let links = fabric.class(host).links.len();
        let instances: Vec<String> = (0..links)
            .map(|link| {
                let network = fabric.network(fabric.link_network(host, link));
                format!("{}_{}", gateway.name, network.name)
            })
            .collect();
        let _ = write!(text, "\nvrrp_sync_group {} {{\n\tgroup {{\n", gateway.name);
        for instance in &instances {
            let _ = writeln!(text, "\t\t{instance}");
        }
        text.push_str("\t}\n}\n");
        for (link, instance) in instances.iter().enumerate() {
            let address = |ipv6| with_length(fabric, gateway.host, link, ipv6);
            let ipv4 = address(false).ok_or_else(|| unfit("VRRP is written for networks with IPv4"))?;
            let interface = &fabric.class(host).links[link].interface;
            let _ = write!(
                text,
                "\nvrrp_instance {instance} {{\n\tstate {state}\n\tinterface {interface}\n\
                 \tvirtual_router_id {}\n\tpriority {priority}\n\tadvert_int 0.1\n\
                 \tvirtual_ipaddress {{\n\t\t{ipv4} dev {interface}\n\t}}\n",
                place + 1
            );
            if let Some(ipv6) = address(true) {
                let _ = write!(text, "\tvirtual_ipaddress_excluded {{\n\t\t{ipv6} dev {interface}\n\t}}\n");
            }
            text.push_str("}\n");
        }
    }
    Ok(text)
}

fn with_length(fabric: &Fabric, host: HostId, link: usize, ipv6: bool) -> Option<String> {
    let address = fabric.address(host, link, ipv6)?;
    let prefix = fabric.prefix_of(fabric.link_network(host, link), address)?;
    Some(format!("{address}/{}", prefix.length))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io::Write as _, process::Command};

    use clearstream_sys::namespace::{Holder, NamespaceSet};

    use super::*;
    use crate::fabric;

    /// Has a program read a configuration.
    fn checked(program: &str, arguments: &[&str], text: &str) -> String {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let output = Command::new(program).args(arguments).arg(file.path()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{said}\n{text}");
        said
    }

    #[test]
    fn bird_reads_what_is_written_for_it() {
        for name in ["gateways-6", "dual-stack", "cumulus-wolf"] {
            let fabric = fabric::load(name).unwrap();
            for class in 0..fabric.file().classes.len() {
                match bird(&fabric, HostId { class, index: 0 }) {
                    Ok(text) => assert_eq!(checked("/usr/sbin/bird", &["-p", "-c"], &text), ""),
                    // A class on both networks has no gateways.
                    Err(error) => assert!(matches!(error, WatchError::NothingToWatch { .. }), "{error}"),
                }
            }
        }
        let fabric = fabric::load("gateways-6").unwrap();
        let text = bird(&fabric, fabric.find("compute-1").unwrap()).unwrap();
        assert_eq!(text.matches(" bfd").count(), 1 + 12, "{text}");
        let text = bird(&fabric, fabric.find("gw2").unwrap()).unwrap();
        // Eight compute hosts, a login host, two storage hosts, in two families.
        assert_eq!(text.matches("neighbor ").count(), 22, "{text}");
    }

    /// It looks for the interfaces, so they are made where nobody minds.
    #[test]
    fn root_keepalived_reads_what_is_written_for_it() {
        let holder = Holder::start().unwrap();
        let host = NamespaceSet::of_process(holder.pid()).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            let output = host.run(|| Command::new(program).args(arguments).output().unwrap()).unwrap();
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(output.status.success(), "{arguments:?}: {said}");
            said
        };
        let (mut made, mut count) = (BTreeSet::new(), 0);
        for name in ["gateways-6", "dual-stack"] {
            let fabric = fabric::load(name).unwrap();
            for gateway in fabric.gateways() {
                for link in &fabric.class(gateway.host).links {
                    if made.insert(link.interface.clone()) {
                        let (own, peer) = (link.interface.as_str(), format!("peer{}", made.len()));
                        run("ip", &["link", "add", own, "type", "veth", "peer", "name", &peer]);
                        run("ip", &["link", "set", own, "up"]);
                        run("ip", &["link", "set", &peer, "up"]);
                    }
                }
                let mut file = tempfile::NamedTempFile::new().unwrap();
                file.write_all(keepalived(&fabric, gateway.host).unwrap().as_bytes()).unwrap();
                let said = run("/usr/sbin/keepalived", &["-t", "-f", file.path().to_str().unwrap()]);
                assert_eq!(said, "", "nothing to remark on");
                count += 1;
            }
        }
        assert!(count > 6);
    }

    #[test]
    fn keepalived_is_for_gateways() {
        let fabric = fabric::load("gateways-6").unwrap();
        let text = keepalived(&fabric, fabric.find("gw1").unwrap()).unwrap();
        // Its own addresses, and those of the gateway before it, which it backs.
        assert!(text.contains("10.10.0.11/24") && text.contains("10.10.0.16/24"), "{text}");
        assert!(keepalived(&fabric, fabric.find("compute-1").unwrap()).is_err());
    }
}
