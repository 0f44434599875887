//! Files of SUSE, wg-quick and cloud-init, tables of net-tools, patterns of names, and what netplan refuses.

use super::Case;

/// `ifcfg-eth0` of SUSE.
const SUSE: &str = "BOOTPROTO='static'\nSTARTMODE='auto'\nIPADDR='10.1.0.5/24'\nIPADDR_1='10.2.0.5'\nPREFIXLEN_1='24'\nLABEL_1='x'\n";

/// `route -n` of a host with two cards.
const TWO_CARDS: &str = "Kernel IP routing table\n\
    Destination     Gateway         Genmask         Flags Metric Ref    Use Iface\n\
    0.0.0.0         10.1.0.1        0.0.0.0         UG    100    0        0 eth0\n\
    0.0.0.0         10.2.0.1        0.0.0.0         UG    101    0        0 eth1\n\
    10.1.0.0        0.0.0.0         255.255.255.0   U     100    0        0 eth0\n\
    10.2.0.0        0.0.0.0         255.255.255.0   U     101    0        0 eth1\n";

pub(super) const CASES: &[Case] = &[
    Case {
        what: "SUSE: columns of ifroute, a second address by suffix, a rule with its family",
        files: &[
            ("network/ifcfg-eth0", SUSE),
            (
                "network/ifroute-eth0",
                "# Destination Gateway Netmask Interface Options\ndefault 10.1.0.1 - -\n10.9.0.0 10.1.0.2 255.255.0.0 eth0\n\
                 default 10.2.0.1 - eth0 table 100\n10.66.0.0/16 - - - type blackhole metric 9\n",
            ),
            ("network/ifrule-eth0", "ipv4 from 10.2.0.5 table 100 pref 100\n"),
        ],
        routes: &[
            "default via 10.1.0.1 dev eth0",
            "10.9.0.0/16 via 10.1.0.2 dev eth0",
            "default via 10.2.0.1 dev eth0 table 100",
            "10.66.0.0/16 blackhole metric 9",
        ],
        found: &[],
    },
    Case {
        what: "SUSE: routes of the host, whose card is the one on the gateway's network",
        files: &[
            (
                "sysconfig/network/ifcfg-eth0",
                "STARTMODE=auto\nBOOTPROTO=static\nIPADDR=10.1.0.5\nNETMASK=255.255.255.0\n",
            ),
            ("sysconfig/network/routes", "default 10.1.0.1 - -\nfd09::/48 fd00::1 - eth0\n"),
        ],
        routes: &["default via 10.1.0.1 dev ?", "fd09::/48 via fd00::1 dev eth0"],
        found: &[],
    },
    Case {
        what: "SUSE: a gateway that is on no network of the card",
        files: &[("network/ifcfg-eth0", SUSE), ("network/ifroute-eth0", "default 10.7.0.1 - eth0\n")],
        routes: &["default via 10.7.0.1 dev eth0"],
        found: &["gateway:range:outside-every-subnet"],
    },
    Case {
        what: "SUSE: a rule for a table that no route is in",
        files: &[
            ("network/ifcfg-eth0", SUSE),
            ("network/ifrule-eth0", "from 10.2.0.5 lookup 77 priority 77\n"),
        ],
        routes: &[],
        found: &["rule:no-op:empty-table"],
    },
    Case {
        what: "wg-quick: a route for what is allowed and not on the interface already",
        files: &[(
            "wireguard/wg0.conf",
            "[Interface]\nAddress = 10.8.0.2/24\nPrivateKey = x\nListenPort = 51820\n\n[Peer]\nPublicKey = y\nEndpoint = 192.0.2.1:51820\n\
             AllowedIPs = 10.8.0.0/24, 192.168.7.0/24\n",
        )],
        routes: &["192.168.7.0/24 dev wg0"],
        found: &[],
    },
    Case {
        what: "wg-quick: everything through the tunnel, by a mark and a table of its own",
        files: &[(
            "wg0.conf",
            "[Interface]\nAddress = 10.8.0.2/32, fd08::2/128\nPrivateKey = x\nDNS = 10.8.0.1\n\n[Peer]\nPublicKey = y\nAllowedIPs = 0.0.0.0/0, ::/0\n",
        )],
        routes: &["default dev wg0 table 51820"],
        found: &[],
    },
    Case {
        what: "wg-quick: Table=off, and routes by PostUp",
        files: &[(
            "wg1.conf",
            "[Interface]\nAddress = 10.8.0.2/24\nPrivateKey = x\nTable = off\nPostUp = ip route add 10.9.0.0/16 dev %i table 200; \
             ip rule add from 10.8.0.2 table 200 prio 200\nPostDown = ip rule del from 10.8.0.2 table 200\n[Peer]\nPublicKey = y\nAllowedIPs = 0.0.0.0/0\n",
        )],
        routes: &["10.9.0.0/16 dev wg1 table 200"],
        found: &[],
    },
    Case {
        what: "wg-quick: a rule of PostUp for a table that is left empty",
        files: &[(
            "wg1.conf",
            "[Interface]\nAddress = 10.8.0.2/24\nPrivateKey = x\nTable = off\nPostUp = ip rule add from 10.8.0.2 table 200 priority 200\n\
             [Peer]\nPublicKey = y\nAllowedIPs = 0.0.0.0/0\n",
        )],
        routes: &[],
        found: &["rule:no-op:empty-table"],
    },
    Case {
        what: "cloud-init version 1: a bond, a VLAN on it, subnets with gateway, routes and netmasks",
        files: &[(
            "network-config.yaml",
            "network:\n  version: 1\n  config:\n  - type: physical\n    name: eth0\n    mac_address: '52:54:00:00:00:01'\n  - type: bond\n    \
             name: bond0\n    bond_interfaces: [eth0]\n    params: {bond-mode: active-backup}\n    mtu: 9000\n    subnets:\n    - type: static\n      \
             address: 10.1.0.5\n      netmask: 255.255.255.0\n      gateway: 10.1.0.1\n      routes:\n      - {network: 10.9.0.0, netmask: 255.255.0.0, gateway: 10.1.0.2}\n  \
             - type: vlan\n    name: bond0.7\n    vlan_link: bond0\n    vlan_id: 7\n    subnets:\n    - {type: static, address: 10.7.0.5/24}\n    - {type: static6, address: 'fd07::5/64'}\n  \
             - {type: nameserver, address: 10.0.0.2}\n  - {type: route, destination: 10.77.0.0/16, gateway: 10.7.0.1, metric: 3}\n",
        )],
        routes: &[
            "default via 10.1.0.1 dev bond0",
            "10.9.0.0/16 via 10.1.0.2 dev bond0",
            "10.77.0.0/16 via 10.7.0.1 dev ? metric 3",
        ],
        found: &[],
    },
    Case {
        what: "cloud-init version 1 without \"network:\", an address without length is a /24",
        files: &[(
            "network_data.yaml",
            "version: 1\nconfig:\n- type: physical\n  name: eth0\n  subnets:\n  - {type: static, address: 10.1.0.5, gateway: 10.1.0.1}\n  - {type: dhcp6}\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "cloud-init version 1: the gateway of a route is on no network of the card",
        files: &[(
            "network-config.yml",
            "version: 1\nconfig:\n- type: physical\n  name: eth0\n  subnets:\n  - type: static\n    address: 10.1.0.5/24\n    \
             routes: [{destination: 10.9.0.0/16, gateway: 10.7.0.1}]\n",
        )],
        routes: &["10.9.0.0/16 via 10.7.0.1 dev eth0"],
        found: &["gateway:range:outside-every-subnet"],
    },
    Case {
        what: "route -n, saved under a name that looks like one of the network scripts",
        files: &[("route-n.txt", TWO_CARDS)],
        routes: &[
            "default via 10.1.0.1 dev eth0 metric 100",
            "default via 10.2.0.1 dev eth1 metric 101",
            "10.1.0.0/24 dev eth0 metric 100",
            "10.2.0.0/24 dev eth1 metric 101",
        ],
        found: &[],
    },
    Case {
        what: "a forum: two host routes and the networks of the other card (route -n behind a prompt with a name)",
        files: &[(
            "post.txt",
            "user@domain:~$ route -n\nKernel IP routing table\nDestination     Gateway         Genmask         Flags Metric Ref    Use Iface\n\
             192.168.11.2    0.0.0.0         255.255.255.255 UH    0      0        0 eth0\n\
             192.168.11.0    0.0.0.0         255.255.255.0   U     0      0        0 eth1\n\
             0.0.0.0        192.168.11.1        0.0.0.0         UG    0      0        0 eth1\n",
        )],
        routes: &[
            "192.168.11.2/32 dev eth0",
            "192.168.11.0/24 dev eth1",
            "default via 192.168.11.1 dev eth1",
        ],
        found: &[],
    },
    Case {
        what: "route without -n: names stand where addresses were, and are not guessed",
        files: &[(
            "post.txt",
            "$ route\nKernel IP routing table\nDestination     Gateway         Genmask         Flags Metric Ref    Use Iface\n\
             default         _gateway        0.0.0.0         UG    100    0        0 eth0\n\
             10.9.0.0        10.1.0.2        255.255.0.0     UG    100    0        0 eth0\n\
             link-local      0.0.0.0         255.255.0.0     U     1000   0        0 eth0\n",
        )],
        routes: &["10.9.0.0/16 via 10.1.0.2 dev eth0 metric 100"],
        found: &[],
    },
    Case {
        what: "route -6 -n: a prefix of the link inside of one that leads over its router",
        files: &[(
            "post.txt",
            "Kernel IPv6 routing table\nDestination                    Next Hop                   Flag Met Ref Use If\n\
             2001:db8:1:2::/64              [::]                       U    256 1     0 eth0\n\
             2001:db8:1::/48                fe80::1                    UG   100 1     0 eth0\n",
        )],
        routes: &["2001:db8:1:2::/64 dev eth0 metric 256", "2001:db8:1::/48 via fe80::1 dev eth0 metric 100"],
        found: &[],
    },
    Case {
        what: "netplan: ports of Open vSwitch, which other devices are made of (netplan itself asks for its daemon first)",
        files: &[(
            "bridges.yaml",
            "network:\n  version: 2\n  openvswitch:\n    ports: [[patch0, patch1]]\n  ethernets:\n    eth0: {addresses: [10.1.0.5/24]}\n  bridges:\n    \
             br0: {interfaces: [patch0], openvswitch: {}}\n    br1: {interfaces: [patch1], openvswitch: {}}\n",
        )],
        routes: &[],
        found: &[],
    },
    Case {
        what: "netstat -rn below a prompt: it prints no metric, so that a second default route is not told from the first",
        files: &[(
            "ticket.txt",
            "$ netstat -rn\nKernel IP routing table\nDestination     Gateway         Genmask         Flags   MSS Window  irtt Iface\n\
             0.0.0.0         10.1.0.1        0.0.0.0         UG        0 0          0 eth0\n\
             0.0.0.0         10.2.0.1        0.0.0.0         UG        0 0          0 eth1\n\
             10.9.0.0        10.1.0.2        255.255.0.0     UG        0 0          0 eth0\n\
             10.66.0.0       -               255.255.0.0     !H        0 -          0 -\n",
        )],
        routes: &[
            "default via 10.1.0.1 dev eth0",
            "10.9.0.0/16 via 10.1.0.2 dev eth0",
            "10.66.0.0/16 unreachable",
        ],
        found: &[],
    },
    Case {
        what: "route -6 -n beside ip rule in one ticket",
        files: &[(
            "ticket.txt",
            "# route -6 -n\nKernel IPv6 routing table\nDestination                    Next Hop                   Flag Met Ref Use If\n\
             fd01::/64                      ::                         U    256 1     0 eth0\n\
             fe80::/64                      ::                         U    256 1     0 eth0\n\
             ::/0                           fe80::1                    UG   100 2     0 eth0\n\
             ::1/128                        ::                         Un   0   3     0 lo\n\
             ff00::/8                       ::                         U    256 3     0 eth0\n\n\
             # ip -6 rule\n0:\tfrom all lookup local\n32766:\tfrom all lookup main\n",
        )],
        routes: &["fd01::/64 dev eth0 metric 256", "default via fe80::1 dev eth0 metric 100"],
        found: &[],
    },
    Case {
        what: "a prefix that a router advertised, inside of one that leads over it (ip -6 route)",
        files: &[(
            "routes.txt",
            "$ ip -6 route\n2001:db8:1:2::/64 dev eth0 proto ra metric 100 pref medium\n2001:db8:1::/48 via fe80::1 dev eth0 proto ra metric 100 pref medium\n\
             default via fe80::1 dev eth0 proto ra metric 100 expires 1795sec hoplimit 64 pref medium\n",
        )],
        routes: &[
            "2001:db8:1:2::/64 dev eth0 metric 100",
            "2001:db8:1::/48 via fe80::1 dev eth0 metric 100",
            "default via fe80::1 dev eth0 metric 100",
        ],
        found: &[],
    },
    Case {
        what: "a mesh VPN's rules as ip prints them: fallbacks behind the main table",
        files: &[(
            "ticket.txt",
            "$ ip rule\n0:\tfrom all lookup local\n5210:\tfrom all fwmark 0x80000/0xff0000 lookup main\n5230:\tfrom all fwmark 0x80000/0xff0000 lookup default\n\
             5250:\tfrom all fwmark 0x80000/0xff0000 unreachable\n5270:\tfrom all lookup 52\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n\
             $ ip route show table 52\n100.64.0.5 dev vpn0\n$ ip route\ndefault via 10.1.0.1 dev eth0\n10.1.0.0/24 dev eth0 proto kernel scope link src 10.1.0.5\n",
        )],
        routes: &["100.64.0.5/32 dev vpn0 table 52", "default via 10.1.0.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "rules of a VPN daemon and a tunnel: one table was printed, the other was not",
        files: &[(
            "ticket.txt",
            "root@h:~# ip rule\n0:\tfrom all lookup local\n220:\tfrom all lookup 220\n32764:\tfrom all lookup main suppress_prefixlength 0\n\
             32765:\tnot from all fwmark 0xca6c lookup 51820\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n\
             root@h:~# ip route show table 51820\ndefault dev wg0 scope link\nroot@h:~# ip route\ndefault via 10.1.0.1 dev eth0\n\
             10.1.0.0/24 dev eth0 proto kernel scope link src 10.1.0.5\n",
        )],
        routes: &["default dev wg0 table 51820", "default via 10.1.0.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "the same with the empty answer of ip route show table 220",
        files: &[(
            "ticket.txt",
            "root@h:~# ip rule\n0:\tfrom all lookup local\n220:\tfrom all lookup 220\n32766:\tfrom all lookup main\n\
             root@h:~# ip route show table 220\nroot@h:~# ip route\ndefault via 10.1.0.1 dev eth0\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0"],
        found: &["rule:no-op:empty-table"],
    },
    Case {
        what: "networkd: cards by a pattern, with DHCP (cloud image)",
        files: &[("network/10-all.network", "[Match]\nName=en* eth*\n\n[Network]\nDHCP=yes\n")],
        routes: &[],
        found: &[],
    },
    Case {
        what: "networkd: a card by its driver, with a gateway that is on no network of it",
        files: &[(
            "network/10-driver.network",
            "[Match]\nDriver=mlx5_core\n[Network]\nAddress=10.1.0.5/24\nGateway=10.7.0.1\n",
        )],
        routes: &["default via 10.7.0.1 dev Driver=mlx5_core"],
        found: &["gateway:range:outside-every-subnet"],
    },
    Case {
        what: "ifupdown: a stanza inherits netmask, gateway and commands of another, which is no interface",
        files: &[(
            "network/interfaces",
            "iface base inet static\n  netmask 255.255.255.0\n  gateway 10.1.0.1\n  up ip route add 10.9.0.0/16 via 10.1.0.2 dev $IFACE\n\n\
             auto eth0\niface eth0 inet static inherits base\n  address 10.1.0.5\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0", "10.9.0.0/16 via 10.1.0.2 dev eth0"],
        found: &[],
    },
    Case {
        what: "ifupdown: a mapping chooses between two stanzas, neither of which is an interface",
        files: &[(
            "network/interfaces",
            "auto eth1\niface eth1 inet static\n  address 10.2.0.5/24\nmapping eth0\n  script /usr/local/sbin/where\n  map HOME home\n  map WORK work\n\n\
             iface home inet dhcp\niface work inet static\n  address 10.1.0.5/24\n  gateway 10.1.0.1\n",
        )],
        routes: &[],
        found: &[],
    },
    Case {
        what: "ifupdown: prio in a rule, a loop in a command, a metric beside each gateway",
        files: &[(
            "network/interfaces",
            "auto eth0\niface eth0 inet static\n  address 10.1.0.5/24\n  gateway 10.1.0.1\n  metric 10\nauto eth1\niface eth1 inet static\n  \
             address 10.2.0.5/24\n  gateway 10.2.0.1\n  metric 20\n  up ip route add default via 10.2.0.1 table 102\n  \
             up ip rule add from 10.2.0.5 table 102 prio 102\n  up for n in 20 30; do ip route add 10.$n.0.0/16 via 10.2.0.2; done || true\n",
        )],
        routes: &[
            "default via 10.1.0.1 dev eth0 metric 10",
            "default via 10.2.0.1 dev eth1 metric 20",
            "default via 10.2.0.1 dev ? table 102",
            "10.20.0.0/16 via 10.2.0.2 dev ?",
            "10.30.0.0/16 via 10.2.0.2 dev ?",
        ],
        found: &[],
    },
    Case {
        what: "ifupdown on a hypervisor: a bridge with the address, the card without one",
        files: &[(
            "network/interfaces",
            "auto lo\niface lo inet loopback\niface eno1 inet manual\nauto vmbr0\niface vmbr0 inet static\n\taddress 10.1.0.5/24\n\tgateway 10.1.0.1\n\t\
             bridge-ports eno1\n\tbridge-stp off\n\tbridge-fd 0\nauto vmbr1\niface vmbr1 inet static\n\taddress 10.10.10.1/24\n\tbridge-ports none\n\t\
             post-up echo 1 > /proc/sys/net/ipv4/ip_forward\n\tpost-up iptables -t nat -A POSTROUTING -s '10.10.10.0/24' -o vmbr0 -j MASQUERADE\n",
        )],
        routes: &["default via 10.1.0.1 dev vmbr0"],
        found: &[],
    },
    Case {
        what: "ifupdown: a hosted machine, /32 with pointopoint",
        files: &[(
            "network/interfaces",
            "auto eth0\niface eth0 inet static\n  address 192.0.2.10\n  netmask 255.255.255.255\n  pointopoint 192.0.2.1\n  gateway 192.0.2.1\n",
        )],
        routes: &["default via 192.0.2.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "netplan: a key that is written wrong",
        files: &[(
            "etc/netplan/a.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [10.1.0.5/24]\n      gatway4: 10.1.0.1\n",
        )],
        routes: &[],
        found: &["file:no-op:not-taken"],
    },
    Case {
        what: "netplan: routes stand one level too high, below the kind of device",
        files: &[(
            "etc/netplan/a.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [10.1.0.5/24]\n      route:\n        - {to: 10.9.0.0/16, via: 10.1.0.1}\n",
        )],
        routes: &[],
        found: &["file:no-op:not-taken"],
    },
    Case {
        what: "netplan: addresses that are no list",
        files: &[(
            "etc/netplan/a.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: 10.1.0.5/24\n",
        )],
        routes: &[],
        found: &["file:no-op:not-taken"],
    },
    Case {
        what: "netplan: a bond of a card that no section defines",
        files: &[(
            "etc/netplan/a.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0: {}\n  bonds:\n    bond0:\n      interfaces: [eth0, eth1]\n      addresses: [10.1.0.5/24]\n",
        )],
        routes: &[],
        found: &["file:no-op:not-taken"],
    },
    Case {
        what: "netplan: a VLAN on a card that no section defines",
        files: &[(
            "etc/netplan/a.yaml",
            "network:\n  version: 2\n  vlans:\n    vlan7: {id: 7, link: eth0, addresses: [10.7.0.5/24]}\n",
        )],
        routes: &[],
        found: &["file:no-op:not-taken"],
    },
    Case {
        what: "netplan: a card in two bonds",
        files: &[(
            "etc/netplan/a.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0: {}\n    eth1: {}\n  bonds:\n    bond0: {interfaces: [eth0]}\n    bond1: {interfaces: [eth0, eth1]}\n",
        )],
        routes: &[],
        found: &["file:no-op:not-taken"],
    },
    Case {
        what: "netplan: an MTU that is no number, optional that is neither true nor false",
        files: &[(
            "etc/netplan/a.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      mtu: jumbo\n      optional: perhaps\n      addresses: [10.1.0.5/24]\n",
        )],
        routes: &[],
        found: &["file:no-op:not-taken", "file:no-op:not-taken"],
    },
    Case {
        what: "netplan: a type of route that it does not know",
        files: &[(
            "etc/netplan/a.yaml",
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [10.1.0.5/24]\n      routes:\n        - {to: 10.9.0.0/16, via: 10.1.0.1, type: drop}\n",
        )],
        routes: &[],
        found: &["file:no-op:not-taken"],
    },
    Case {
        what: "netplan: every kind of device with keys of its own, and none written wrong",
        files: &[(
            "etc/netplan/a.yaml",
            "network:\n  version: 2\n  renderer: networkd\n  ethernets:\n    eth0:\n      match: {macaddress: '52:54:00:00:00:01'}\n      set-name: lan0\n      \
             wakeonlan: true\n      receive-checksum-offload: true\n      optional: yes\n      dhcp4: no\n      link-local: []\n      addresses: [10.1.0.5/24]\n      nameservers: {addresses: [10.0.0.2]}\n      \
             ignore-carrier: true\n      routes: [{to: default, via: 10.1.0.1}]\n    eth1: {optional-addresses: [ipv4-ll], ipv6-privacy: false}\n    eth2: {}\n  bonds:\n    bond0:\n      \
             interfaces: [eth1]\n      parameters: {mode: active-backup}\n  bridges:\n    br0:\n      interfaces: [eth2]\n      parameters: {stp: false}\n      macaddress: '52:54:00:00:00:07'\n  \
             vlans:\n    vlan7: {id: 7, link: bond0, mtu: 1400}\n",
        )],
        routes: &["default via 10.1.0.1 dev lan0"],
        found: &[],
    },
];
