//! Files of systemd-networkd, and of netplan, which writes them.

use std::path::Path;

use clearstream_schema::routing::HostRouting;

use super::Case;
use crate::tools::{daemons, private};

/// Every kind of section, for systemd-networkd itself: what it ignores and what the kernel refuses is among them.
pub(super) const PLAYED: Case = Case {
    what: "all kinds",
    files: &[
        ("network/names.conf", ""),
        ("networkd.conf.d/tables.conf", "[Network]\nRouteTable=one:1 two:2\n"),
        (
            "network/e0.network",
            "[Match]\nName=e0\n[Network]\nAddress=10.1.0.5/24\nGateway=10.1.0.1\n\
             [Route]\nDestination=10.50.0.0/16\nGateway=10.1.0.1\nMultiPathRoute=10.1.0.2\n\
             [Route]\nDestination=10.51.2.3/16\nGateway=10.1.0.1\n\
             [Route]\nDestination=fd52::/64\nGateway=fe80::1\n[Route]\nDestination=fd52::/64\nGateway=fe80::2\n\
             [Route]\nDestination=10.53.0.0/16\nGateway=10.1.0.1\nTable=one\n\
             [Route]\nDestination=10.54.0.0/16\nGateway=10.9.9.9\n\
             [Route]\nDestination=10.55.0.0/16\nGateway=10.9.9.8\nGatewayOnLink=yes\n\
             [Route]\nDestination=10.56.0.0/16\nGateway=_dhcp4\n\
             [Route]\nDestination=10.57.0.0/16\nGateway=10.1.0.1\nPreferredSource=10.77.0.1\n\
             [Route]\nDestination=10.58.0.0\nGateway=10.1.0.1\n\
             [Route]\nType=blackhole\nDestination=10.59.0.0/16\n\
             [Route]\nDestination=10.60.0.0/16\nMetric=50\n\
             [Route]\nDestination=10.61.0.0/16\nGateway=10.1.0.1\nTable=nobody-knows\n\
             [RoutingPolicyRule]\nFrom=10.1.0.5\nTable=one\nPriority=100\n\
             [RoutingPolicyRule]\nTo=10.66.1.1/16\nTable=two\nPriority=101\n\
             [RoutingPolicyRule]\nFrom=10.1.0.6\nTable=nobody-knows\nPriority=102\n",
        ),
        (
            "network/z-second.network",
            "[Match]\nName=e0\n[Route]\nDestination=10.70.0.0/16\nGateway=10.1.0.1\n",
        ),
    ],
    routes: &[],
    found: &[],
};

/// What the kernel holds after systemd-networkd has read the files.
pub(super) fn played(root: &Path) -> HostRouting {
    let root = root.display();
    let script = format!(
        "{quick}ip link add e0 type veth peer name far-e0\nip link set e0 up\nip link set far-e0 up\n\
         mount -t tmpfs none /run\nmkdir -p /run/systemd/netif /run/systemd/network /run/systemd/networkd.conf.d\n\
         chown systemd-network /run/systemd/netif\nmount -t sysfs -o ro none /sys\n\
         cp {root}/network/*.network /run/systemd/network/\ncp {root}/networkd.conf.d/* /run/systemd/networkd.conf.d/\n\
         /lib/systemd/systemd-networkd </dev/null >/dev/null 2>&1 & networkd=$!\n\
         for try in $(seq 100); do sleep 0.1; ip route show 10.60.0.0/16 | grep -q . && \
         ip -6 route show fd52::/64 | grep -q fe80::2 && ip rule | grep -q ^101: && break; done\nsleep 0.3\n{show}\
         kill $networkd; wait $networkd\n",
        quick = daemons::QUICK,
        show = private::SHOW,
    );
    let output = private::run(&script);
    let mut states = private::states(&output.stdout);
    states.pop().unwrap_or_else(|| panic!("{}", output.stderr))
}

pub(super) const CASES: &[Case] = &[
    Case {
        what: "a gateway: addresses and IPv4Forwarding, no file of sysctls",
        files: &[
            (
                "network/eth0.network",
                "[Match]\nName=eth0\n\n[Network]\nAddress=10.0.0.5/24\nIPv4Forwarding=yes\n",
            ),
            (
                "network/eth1.network",
                "[Match]\nName=eth1\n\n[Network]\nAddress=10.2.0.5/24\nIPForward=ipv4\n",
            ),
        ],
        routes: &[],
        found: &[],
    },
    Case {
        what: "a hypervisor's script: Gateway= and MultiPathRoute= in one section, which is ignored",
        files: &[(
            "network/uplink.network",
            "[Match]\nName=eth0\n[Network]\nAddress=10.1.0.5/24\n[Route]\nDestination=0.0.0.0/0\nGateway=10.1.0.1\n\
             MultiPathRoute=10.1.0.2\n",
        )],
        routes: &[],
        found: &["route:no-op:not-taken"],
    },
    Case {
        what: "tables by the names of networkd.conf",
        files: &[
            ("systemd/networkd.conf", "[Network]\nRouteTable=one:1 two:2\n"),
            (
                "network/eth1.network",
                "[Match]\nName=eth1\n[Network]\nAddress=10.2.0.5/24\n[Route]\nGateway=10.2.0.1\nTable=two\n\
                 [RoutingPolicyRule]\nFrom=10.2.0.5\nTable=two\nPriority=100\n",
            ),
            (
                "network/eth0.network",
                "[Match]\nName=eth0\n[Network]\nAddress=10.1.0.5/24\nGateway=10.1.0.1\n",
            ),
        ],
        routes: &["default via 10.2.0.1 dev eth1 table 2", "default via 10.1.0.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "tables by the names of rt_tables, which systemd-networkd does not read (issue): route and rule are ignored",
        files: &[
            ("iproute2/rt_tables", "100 backup\n"),
            (
                "network/eth1.network",
                "[Match]\nName=eth1\n[Network]\nAddress=10.2.0.5/24\n[Route]\nGateway=10.2.0.1\nTable=backup\n\
                 [RoutingPolicyRule]\nFrom=10.2.0.5\nTable=backup\nPriority=100\n",
            ),
        ],
        routes: &[],
        found: &["route:no-op:not-taken", "rule:no-op:not-taken"],
    },
    Case {
        what: "two gateways of IPv6 and one metric: the kernel uses both",
        files: &[(
            "network/eth0.network",
            "[Match]\nName=eth0\n[Network]\nAddress=fd00:1::5/64\n[Route]\nGateway=fe80::1\n[Route]\nGateway=fe80::2\n",
        )],
        routes: &["default via fe80::1 dev eth0", "default via fe80::2 dev eth0"],
        found: &[],
    },
    Case {
        what: "two gateways of IPv4 and one metric on one card (question): one is used",
        files: &[(
            "network/eth0.network",
            "[Match]\nName=eth0\n[Network]\nAddress=10.1.0.5/24\n[Route]\nGateway=10.1.0.1\n[Route]\nGateway=10.1.0.2\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0", "default via 10.1.0.2 dev eth0"],
        found: &["table:contradiction:used-twice"],
    },
    Case {
        what: "by link address, with the name in a .link file",
        files: &[
            ("network/10-lan.link", "[Match]\nPermanentMACAddress=52:54:00:00:00:02\n[Link]\nName=lan0\n"),
            (
                "network/lan.network",
                "[Match]\nMACAddress=52:54:00:00:00:02\n[Network]\nAddress=10.1.0.5/24\nGateway=10.1.0.1\n",
            ),
        ],
        routes: &["default via 10.1.0.1 dev lan0"],
        found: &[],
    },
    Case {
        what: "one file for two ports",
        files: &[(
            "network/ports.network",
            "[Match]\nName=eth0 eth1\n[Network]\nLinkLocalAddressing=no\n[Route]\nDestination=10.9.0.0/16\nScope=link\nMetric=9\n",
        )],
        routes: &["10.9.0.0/16 dev eth0 metric 9", "10.9.0.0/16 dev eth1 metric 9"],
        found: &["table:contradiction:used-twice"],
    },
    Case {
        what: "a second table with the gateway of DHCP: its route is there at run time",
        files: &[(
            "network/eth1.network",
            "[Match]\nName=eth1\n[Network]\nDHCP=ipv4\n[Route]\nGateway=_dhcp4\nTable=7\n\
             [RoutingPolicyRule]\nFrom=10.2.0.0/24\nTable=7\nPriority=7\n",
        )],
        routes: &[],
        found: &[],
    },
    Case {
        what: "two files for one interface: the second is not in effect",
        files: &[
            (
                "network/10-eth0.network",
                "[Match]\nName=eth0\n[Network]\nAddress=10.1.0.5/24\nGateway=10.1.0.1\n",
            ),
            (
                "network/20-eth0.network",
                "[Match]\nName=eth0\n[Route]\nDestination=10.9.0.0/16\nGateway=10.1.0.2\n",
            ),
        ],
        routes: &["default via 10.1.0.1 dev eth0"],
        found: &["file:no-op:not-taken"],
    },
    Case {
        what: "a VRF: the routes of its interface are in its table",
        files: &[
            ("network/blue.netdev", "[NetDev]\nName=blue\nKind=vrf\n[VRF]\nTable=10\n"),
            (
                "network/eth1.network",
                "[Match]\nName=eth1\n[Network]\nAddress=10.2.0.5/24\nVRF=blue\n[Route]\nGateway=10.2.0.1\n",
            ),
            (
                "network/eth0.network",
                "[Match]\nName=eth0\n[Network]\nAddress=10.1.0.5/24\nGateway=10.1.0.1\n",
            ),
        ],
        routes: &["default via 10.2.0.1 dev eth1 table 10", "default via 10.1.0.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "a migration tool: the next hop is the other end's network",
        files: &[(
            "network/eth0.network",
            "[Match]\nName=eth0\n[Network]\nAddress=10.1.0.5/24\n[Route]\nDestination=10.9.0.0/16\nGateway=10.11.0.1\n",
        )],
        routes: &["10.9.0.0/16 via 10.11.0.1 dev eth0"],
        found: &["gateway:range:outside-every-subnet"],
    },
    Case {
        what: "netplan: a VRF, whose table its routes and rules need not name",
        files: &[(
            "etc/netplan/50-vrf.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [10.1.0.5/24]\n    eth1:\n      addresses: [10.2.0.5/24]\n  \
             vrfs:\n    vrf1005:\n      table: 1005\n      interfaces: [eth1]\n      routes:\n        - to: default\n          \
             via: 10.2.0.1\n      routing-policy:\n        - from: 10.2.0.5\n          priority: 99\n",
        )],
        routes: &["default via 10.2.0.1 dev vrf1005 table 1005"],
        found: &[],
    },
    Case {
        what: "netplan: rules with the renderer NetworkManager and priorities: in effect since 1.2",
        files: &[(
            "etc/netplan/01.yaml",
            "network:\n  version: 2\n  renderer: NetworkManager\n  ethernets:\n    eth1:\n      addresses: [10.2.0.5/24]\n      \
             routes:\n        - {to: default, via: 10.2.0.1, table: 7}\n      routing-policy:\n        - {from: 10.2.0.5, table: 7, priority: 7}\n",
        )],
        routes: &["default via 10.2.0.1 dev eth1 table 7 metric 100"],
        found: &["route:routing:no-default-in-main"],
    },
    Case {
        what: "netplan: rules with the renderer NetworkManager without priority (wiki): never there",
        files: &[(
            "etc/netplan/01.yaml",
            "network:\n  version: 2\n  renderer: NetworkManager\n  ethernets:\n    eth1:\n      addresses: [10.2.0.5/24]\n      \
             routes:\n        - {to: 0.0.0.0/0, via: 10.2.0.1, table: 7}\n      routing-policy:\n        - {from: 10.2.0.5, table: 7}\n",
        )],
        routes: &["default via 10.2.0.1 dev eth1 table 7 metric 100"],
        found: &["rule:no-op:not-taken"],
    },
    Case {
        what: "netplan: a container's single address with its gateway on the link",
        files: &[(
            "etc/netplan/01.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [192.0.2.7/32]\n      routes:\n        - to: default\n          \
             via: 169.254.0.1\n          on-link: true\n",
        )],
        routes: &["default via 169.254.0.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "netplan: the same before the fix (forum): the kernel refuses the route",
        files: &[(
            "etc/netplan/01.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [192.0.2.7/32]\n      routes:\n        - to: default\n          \
             via: 169.254.0.1\n",
        )],
        routes: &["default via 169.254.0.1 dev eth0"],
        found: &["gateway:range:outside-every-subnet"],
    },
    Case {
        what: "netplan: an address without length: the whole file is refused",
        files: &[(
            "etc/netplan/01.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [192.168.14.2]\n      routes:\n        - to: default\n          \
             via: 192.168.14.1\n",
        )],
        routes: &["default via 192.168.14.1 dev eth0"],
        found: &["file:no-op:not-taken"],
    },
    Case {
        what: "netplan: a rule by interface, which no release has",
        files: &[(
            "etc/netplan/01.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [10.1.0.5/24]\n      routing-policy:\n        \
             - {from: 10.1.0.5, iif: eth1, table: 7}\n",
        )],
        routes: &[],
        found: &["file:no-op:not-taken"],
    },
    Case {
        what: "netplan: a route without \"to\", and one of two families",
        files: &[(
            "etc/netplan/01.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [10.1.0.5/24]\n      routes:\n        - {via: 10.1.0.1}\n        \
             - {to: 10.9.0.0/16, via: 'fd00::1'}\n",
        )],
        routes: &[],
        found: &["file:no-op:not-taken", "file:no-op:not-taken"],
    },
    Case {
        what: "netplan: values that it does not take: type of service, scope, families of a rule, a VLAN without link",
        files: &[(
            "etc/netplan/01.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [10.1.0.5/24]\n      routes:\n        - {to: 10.9.0.0/16, via: 10.1.0.1, scope: near}\n      \
             routing-policy:\n        - {from: 10.1.0.5, type-of-service: 256, table: 7}\n        - {from: 10.1.0.5, to: 'fd00::/64', table: 7}\n  vlans:\n    \
             vlan7: {id: 7}\n",
        )],
        routes: &[],
        found: &[
            "file:no-op:not-taken",
            "file:no-op:not-taken",
            "file:no-op:not-taken",
            "file:no-op:not-taken",
        ],
    },
    Case {
        what: "cloud-init's network-config of version 2, without \"network:\"",
        files: &[(
            "network-config.yaml",
            "version: 2\nethernets:\n  eth0:\n    addresses: [10.1.0.5/24]\n    gateway4: 10.1.0.1\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "netplan: a second table that leads to its own network alone (blog): other replies leave by the first card",
        files: &[(
            "etc/netplan/01.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [10.1.0.5/24]\n      routes:\n        - {to: default, via: 10.1.0.1}\n    \
             eth1:\n      addresses: [10.2.0.5/24]\n      routes:\n        - {to: 10.2.0.0/24, via: 10.2.0.1, table: 101}\n      \
             routing-policy:\n        - {from: 10.2.0.0/24, table: 101, priority: 101}\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0", "10.2.0.0/24 via 10.2.0.1 dev eth1 table 101"],
        found: &["table:routing:own-network-only"],
    },
    Case {
        what: "netplan: by link address with a name to set, and DHCP beside it, as a cloud's first boot writes it",
        files: &[(
            "etc/netplan/50-cloud-init.yaml",
            "network:\n  version: 2\n  ethernets:\n    id0:\n      match: {macaddress: '52:54:00:00:00:03'}\n      set-name: ens3\n      dhcp4: true\n    \
             id1:\n      match: {macaddress: '52:54:00:00:00:04'}\n      set-name: ens4\n      addresses: [10.2.0.5/24]\n      routes:\n        \
             - {to: 10.9.0.0/16, via: 10.2.0.1, metric: 50}\n",
        )],
        routes: &["10.9.0.0/16 via 10.2.0.1 dev ens4 metric 50"],
        found: &[],
    },
];
