//! Scripts, what `ip` prints, and `/etc/network/interfaces`. Rows with a `play.sh` are played in a namespace too.

use super::Case;

/// The cards of the scripts: e0 on 10.1.0.0/24, e1 on 10.2.0.0/24, both with a carrier.
pub(super) const LINKS: &str = "\
sysctl -q net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0
for card in e0 e1; do ip link add $card type veth peer name far-$card; ip link set $card up; ip link set far-$card up; done
";

pub(super) const CASES: &[Case] = &[
    Case {
        what: "two gateways in one table (question): the kernel refuses the second",
        files: &[(
            "play.sh",
            "ip address add 10.1.0.5/24 dev e0\nip route add default via 10.1.0.1 dev e0\nip route add default via 10.1.0.2 dev e0\n",
        )],
        routes: &["default via 10.1.0.1 dev e0", "default via 10.1.0.2 dev e0"],
        found: &["table:contradiction:used-twice"],
    },
    Case {
        what: "replace twice: the second takes the place of the first",
        files: &[(
            "play.sh",
            "ip address add 10.1.0.5/24 dev e0\nip route replace default via 10.1.0.1 dev e0\nip route replace default via 10.1.0.2 dev e0\n",
        )],
        routes: &["default via 10.1.0.2 dev e0"],
        found: &[],
    },
    Case {
        what: "append: the kernel takes both and uses the first",
        files: &[(
            "play.sh",
            "ip address add 10.1.0.5/24 dev e0\nip route append default via 10.1.0.1 dev e0\nip route append default via 10.1.0.2 dev e0\n",
        )],
        routes: &["default via 10.1.0.1 dev e0", "default via 10.1.0.2 dev e0"],
        found: &["table:contradiction:used-twice"],
    },
    Case {
        what: "a destination with bits behind its length: refused",
        files: &[(
            "play.sh",
            "ip address add 10.1.0.5/24 dev e0\nip route add 10.9.2.3/16 via 10.1.0.1 dev e0\nip -6 address add fd00::5/64 dev e0\n\
             ip -6 route add fd09::3/64 via fd00::1 dev e0\n",
        )],
        routes: &["fd09::/64 via fd00::1 dev e0"],
        found: &["route:range:refused"],
    },
    Case {
        what: "a rule without table is for the main table",
        files: &[(
            "play.sh",
            "ip address add 10.1.0.5/24 dev e0\nip rule add from 10.1.0.5 pref 100\nip route add default via 10.1.0.1 dev e0\n",
        )],
        routes: &["default via 10.1.0.1 dev e0"],
        found: &[],
    },
    Case {
        what: "two tunnels as next hops without gateways (bonded VPN)",
        files: &[(
            "play.sh",
            "ip address add 10.1.0.5/24 dev e0\nip route add 10.9.0.0/16 nexthop dev e0 weight 1 nexthop dev e1 weight 1\n\
             ip route add 10.8.0.0/16 via 10.1.0.1 dev e0\n",
        )],
        routes: &["10.8.0.0/16 via 10.1.0.1 dev e0"],
        found: &[],
    },
    Case {
        what: "a gateway of the link by \"onlink\", and by a route of its own",
        files: &[(
            "play.sh",
            "ip address add 192.0.2.7/24 dev e0\nip route add default via 169.254.0.1 dev e0 onlink\n\
             ip route add 198.51.100.1 dev e0\nip route add 10.9.0.0/16 via 198.51.100.1 dev e0\n",
        )],
        routes: &[
            "default via 169.254.0.1 dev e0",
            "198.51.100.1/32 dev e0",
            "10.9.0.0/16 via 198.51.100.1 dev e0",
        ],
        found: &[],
    },
    Case {
        what: "two providers with variables (routing how-to)",
        files: &[(
            "play.sh",
            "IF1=e0\nIF2=e1\nIP1=10.1.0.5\nIP2=10.2.0.5\nP1=10.1.0.1\nP2=10.2.0.1\nip addr add $IP1/24 dev $IF1\nip addr add $IP2/24 dev $IF2\n\
             ip route add 10.1.0.0/24 dev $IF1 src $IP1 table 101\nip route add default via $P1 dev $IF1 table 101\n\
             ip route add 10.2.0.0/24 dev $IF2 src $IP2 table 102\nip route add default via ${P2} dev ${IF2} table 102\n\
             ip route add default via $P1 dev $IF1\nip rule add from $IP1 table 101 priority 101\nip rule add from \"$IP2\" table 102 priority 102\n",
        )],
        routes: &[
            "10.1.0.0/24 dev e0 table 101",
            "default via 10.1.0.1 dev e0 table 101",
            "10.2.0.0/24 dev e1 table 102",
            "default via 10.2.0.1 dev e1 table 102",
            "default via 10.1.0.1 dev e0",
        ],
        found: &[],
    },
    Case {
        what: "nexthop objects, one of them without gateway",
        files: &[(
            "play.sh",
            "ip address add 10.1.0.5/24 dev e0\nip nexthop add id 1 via 10.1.0.1 dev e0\nip nexthop add id 2 dev e1\n\
             ip route add 10.9.0.0/16 nhid 1\nip route add 10.8.0.0/16 nhid 2\n",
        )],
        routes: &["10.9.0.0/16 nhid 1"],
        found: &[],
    },
    Case {
        what: "flushed before it is filled, as a script that may be repeated",
        files: &[(
            "play.sh",
            "ip address add 10.1.0.5/24 dev e0\nip route add default via 10.1.0.9 dev e0 table 7\nip route flush table 7\n\
             ip route add default via 10.1.0.1 dev e0 table 7\nip rule add from 10.1.0.5 table 7 priority 7\nip route add default via 10.1.0.1 dev e0\n",
        )],
        routes: &["default via 10.1.0.1 dev e0 table 7", "default via 10.1.0.1 dev e0"],
        found: &[],
    },
    Case {
        what: "one default route or the other (failover by cron): not both",
        files: &[(
            "check.sh",
            "#!/bin/sh\nip address add 10.1.0.5/24 dev eth0\nif ping -c 1 10.1.0.1; then\n  ip route add default via 10.1.0.1 dev eth0\nelse\n  \
             ip route add default via 10.1.0.2 dev eth0\nfi\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0", "default via 10.1.0.2 dev eth0"],
        found: &[],
    },
    Case {
        what: "a table that gets its name first (tutorial), and a command inside of another",
        files: &[(
            "setup.sh",
            "#!/bin/sh\necho 200 backup >> /etc/iproute2/rt_tables\nip address add 10.1.0.5/24 dev eth0\n\
             ip route add default via 10.1.0.2 dev eth0 table backup\nip rule add from 10.1.0.5 table backup priority 200\n\
             sh -c \"ip route add default via 10.1.0.1 dev eth0\"\n",
        )],
        routes: &["default via 10.1.0.2 dev eth0 table 200", "default via 10.1.0.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "a transcript without prompts",
        files: &[(
            "notes.txt",
            "ip a\n2: eth0: <BROADCAST,UP> mtu 1500 qdisc mq state UP\n    link/ether 52:54:00:00:00:0a brd ff:ff:ff:ff:ff:ff\n    \
             inet 10.1.0.5/24 scope global eth0\n       valid_lft forever preferred_lft forever\nip ro sh ta 7\ndefault via 10.1.0.2 dev eth0\n\
             ip route\ndefault via 10.1.0.1 dev eth0\nip rule\n0: from all lookup local\n7: from 10.1.0.5 lookup 7\n32766: from all lookup main\n",
        )],
        routes: &["default via 10.1.0.2 dev eth0 table 7", "default via 10.1.0.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "net-tools' route beside ip",
        files: &[(
            "net-tools.sh",
            "#!/bin/sh\nip address add 10.1.0.5/24 dev e0\nroute add -net 10.9.0.0 netmask 255.255.0.0 gw 10.1.0.1 metric 3 dev e0\n\
             /sbin/route add default gw 10.1.0.1 e0\n",
        )],
        routes: &["10.9.0.0/16 via 10.1.0.1 dev e0 metric 3", "default via 10.1.0.1 dev e0"],
        found: &[],
    },
    Case {
        what: "the addresses come from a program: table, rule and route are there, and what they are is not known",
        files: &[(
            "wan.sh",
            "#!/bin/bash\nset -e\neth1=$(get_address eth1)\nwhile true; do\n  gw=$(get_gateway eth1)\n  break\ndone\n\
             ip address add 10.1.0.5/24 dev eth0\nip route add default via $gw dev eth1 table 2\nip route add default via 10.1.0.1 dev eth0\n\
             ip rule add from $eth1 table 2 priority 2\nip rule add fwmark 7 table 3 priority 3\nip route add 10.9.0.0/16 via 10.1.0.9 dev eth0 table 3\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0", "10.9.0.0/16 via 10.1.0.9 dev eth0 table 3"],
        found: &[],
    },
    Case {
        what: "a VRF by commands: its routes are not in the main table",
        files: &[(
            "vrf.sh",
            "#!/bin/sh\nip link add vrf-blue type vrf table 10\nip link set dev vrf-blue up\nip link set dev eth1 master vrf-blue\n\
             ip address add 10.2.0.5/24 dev eth1\nip address add 10.1.0.5/24 dev eth0\nip route add default via 10.1.0.1 dev eth0\n\
             ip route add vrf vrf-blue default via 10.2.0.1 dev eth1\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0", "default via 10.2.0.1 dev eth1 table 10"],
        found: &[],
    },
    Case {
        what: "a VRF whose table was not given",
        files: &[(
            "vrf.sh",
            "#!/bin/sh\nip address add 10.1.0.5/24 dev eth0\nip route add default via 10.1.0.1 dev eth0\n\
             ip route add vrf vrf-red default via 10.2.0.1 dev eth1\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "routes of one source or type of service are for these packets alone",
        files: &[(
            "six.sh",
            "#!/bin/sh\nip -6 address add fd00:1::5/64 dev eth0\nip -6 route add default from fd00:1::/64 via fd00:1::1 dev eth0\n\
             ip -6 route add default via fd00:1::2 dev eth0\nip address add 10.1.0.5/24 dev eth0\nip route add 10.9.0.0/16 tos 0x10 via 10.1.0.1 dev eth0\n\
             ip route add 10.9.0.0/16 via 10.1.0.2 dev eth0\n",
        )],
        routes: &["default via fd00:1::2 dev eth0", "10.9.0.0/16 via 10.1.0.2 dev eth0"],
        found: &[],
    },
    Case {
        what: "marks by lines of nft and iptables",
        files: &[(
            "marks.sh",
            "#!/bin/sh\nip address add 10.1.0.5/24 dev eth0\nip route add default via 10.1.0.1 dev eth0\n\
             nft add rule inet filter out tcp dport 80 meta mark set 0x1\niptables -t mangle -A OUTPUT -p udp -j MARK --set-mark 2\n\
             ip rule add fwmark 1 table 1 priority 1\nip rule add fwmark 2 table 2 priority 2\n\
             ip route add default via 10.1.0.2 dev eth0 table 1\nip route add default via 10.1.0.3 dev eth0 table 2\n",
        )],
        routes: &[
            "default via 10.1.0.1 dev eth0",
            "default via 10.1.0.2 dev eth0 table 1",
            "default via 10.1.0.3 dev eth0 table 2",
        ],
        found: &[],
    },
    Case {
        what: "a mark that the firewall beside it does not set",
        files: &[(
            "marks.sh",
            "#!/bin/sh\nip address add 10.1.0.5/24 dev eth0\nip route add default via 10.1.0.1 dev eth0\n\
             iptables -t mangle -A OUTPUT -p udp -j MARK --set-mark 2\nip rule add fwmark 1 table 1 priority 1\n\
             ip route add default via 10.1.0.2 dev eth0 table 1\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0", "default via 10.1.0.2 dev eth0 table 1"],
        found: &["rule:no-op:mark-never-set"],
    },
    Case {
        what: "a ticket: each table below the command that showed it",
        files: &[(
            "ticket.txt",
            "# ip route show\ndefault via 10.1.0.1 dev eth0 \n10.1.0.0/24 dev eth0 proto kernel scope link src 10.1.0.5 \n\
             10.2.0.0/24 dev eth1 proto kernel scope link src 10.2.0.5 \n# ip route show table 100\ndefault via 10.2.0.1 dev eth1 \n\
             root@host:~# ip rule show\n0:\tfrom all lookup local \n100:\tfrom 10.2.0.5 lookup 100 \n32766:\tfrom all lookup main \n32767:\tfrom all lookup default \n\
             $ ip route get 10.9.9.9\n10.9.9.9 via 10.1.0.1 dev eth0 src 10.1.0.5 uid 0 \n    cache \n",
        )],
        routes: &["default via 10.1.0.1 dev eth0", "default via 10.2.0.1 dev eth1 table 100"],
        found: &[],
    },
    Case {
        what: "routes of a routing daemon by nexthop objects that were not printed",
        files: &[(
            "routes.txt",
            "default nhid 30 via 10.1.0.1 dev eth0 proto static metric 20 \n10.0.0.0/8 nhid 81 proto bgp metric 20 \n\
             \tnexthop via 10.1.0.11 dev eth0 weight 1 \n\tnexthop via 10.1.0.12 dev eth0 weight 1 \n\
             10.1.0.0/24 dev eth0 proto kernel scope link src 10.1.0.5 \n192.0.2.0/24 nhid 90 proto bgp metric 20 \n",
        )],
        routes: &[
            "default via 10.1.0.1 dev eth0 metric 20",
            "10.0.0.0/8 via 10.1.0.11*1 dev eth0,10.1.0.12*1 dev eth0 metric 20",
        ],
        found: &[],
    },
    Case {
        what: "ip -d route show table all, with groups",
        files: &[(
            "routes.txt",
            "unicast default via 10.1.0.1 dev e0 table main proto boot scope global \n\
             unicast 10.1.0.0/24 dev e0 table main proto kernel scope link src 10.1.0.5 \n\
             unicast 10.30.0.0/16 nhid 10 table main proto boot scope global \n\tnh_info id 10 group 1,2/2 scope global proto unspec \n\
             \tnexthop via 10.1.0.11 dev e0 weight 2 \n\tnexthop via 10.1.0.12 dev e0 weight 1 \n\
             blackhole 10.34.0.0/16 table main proto boot scope global \n",
        )],
        routes: &[
            "default via 10.1.0.1 dev e0",
            "10.30.0.0/16 via 10.1.0.11*2 dev e0,10.1.0.12*1 dev e0",
            "10.34.0.0/16 blackhole",
        ],
        found: &[],
    },
    Case {
        what: "ip -o route: a backslash in place of each line break",
        files: &[(
            "routes.txt",
            "10.32.0.0/16 \\\tnexthop via 10.1.0.1 dev e0 weight 2 \\\tnexthop via 10.2.0.1 dev e1 weight 1 \n\
             fd31::/64 metric 1024 pref medium\\\tnexthop via fd00::1 dev e0 weight 1 \\\tnexthop via fd00::3 dev e0 weight 1 \n",
        )],
        routes: &[
            "10.32.0.0/16 via 10.1.0.1*2 dev e0,10.2.0.1*1 dev e1",
            "fd31::/64 via fd00::1*1 dev e0,fd00::3*1 dev e0",
        ],
        found: &[],
    },
    Case {
        what: "ip -j: addresses, routes and rules",
        files: &[
            (
                "routes.json",
                "[{\"dst\":\"default\",\"gateway\":\"10.1.0.1\",\"dev\":\"e0\",\"flags\":[]},{\"dst\":\"10.9.0.0/16\",\"protocol\":\"bgp\",\"metric\":20,\
                 \"flags\":[],\"nexthops\":[{\"gateway\":\"10.1.0.11\",\"dev\":\"e0\",\"weight\":1,\"flags\":[]},{\"gateway\":\"10.1.0.12\",\"dev\":\"e0\",\
                 \"weight\":3,\"flags\":[]}]},{\"dst\":\"default\",\"gateway\":\"10.1.0.2\",\"dev\":\"e0\",\"table\":\"7\",\"flags\":[\"onlink\"]}]\n",
            ),
            (
                "rules.json",
                "[{\"priority\":0,\"src\":\"all\",\"table\":\"local\"},{\"priority\":100,\"src\":\"10.1.0.0\",\"srclen\":24,\"table\":\"7\"}]\n",
            ),
            (
                "addresses.json",
                "[{\"ifindex\":2,\"ifname\":\"e0\",\"flags\":[\"UP\"],\"mtu\":1500,\"link_type\":\"ether\",\"address\":\"52:54:00:00:00:09\",\
                 \"addr_info\":[{\"family\":\"inet\",\"local\":\"10.1.0.5\",\"prefixlen\":24}]}]\n",
            ),
        ],
        routes: &[
            "default via 10.1.0.1 dev e0",
            "10.9.0.0/16 via 10.1.0.11*1 dev e0,10.1.0.12*3 dev e0 metric 20",
            "default via 10.1.0.2 dev e0 table 7",
        ],
        found: &[],
    },
    Case {
        what: "a cloud host of containers: the second card and the pods' rules are the kernel's, not ours",
        files: &[
            (
                "routes.txt",
                "default via 10.31.64.1 dev eth0 \n10.31.64.0/19 dev eth0 proto kernel scope link src 10.31.70.5 \n10.31.71.9 dev eni01 scope link \n\
                 default via 10.31.64.1 dev eth1 table 2 \n10.31.64.1 dev eth1 table 2 scope link \n",
            ),
            (
                "rules.txt",
                "0:\tfrom all lookup local \n512:\tfrom all to 10.31.71.9 lookup main \n1024:\tfrom all fwmark 0x80/0x80 lookup main \n\
                 1536:\tfrom 10.31.71.9 lookup 2 \n1536:\tfrom 10.31.72.4 lookup 2 \n32766:\tfrom all lookup main \n",
            ),
        ],
        routes: &[
            "default via 10.31.64.1 dev eth0",
            "10.31.71.9/32 dev eni01",
            "default via 10.31.64.1 dev eth1 table 2",
            "10.31.64.1/32 dev eth1 table 2",
        ],
        found: &[],
    },
    Case {
        what: "a forum: everything by source, and no default route in the main table",
        files: &[
            (
                "routes.txt",
                "default via 10.1.0.1 dev eth0 table 1 proto none \ndefault via 10.2.0.1 dev eth1 table 2 proto none \n\
                 10.1.0.0/24 dev eth0 proto kernel scope link src 10.1.0.5 \n10.2.0.0/24 dev eth1 proto kernel scope link src 10.2.0.5 \n",
            ),
            (
                "rules.txt",
                "0:\tfrom all lookup local \n1:\tfrom 10.1.0.5 lookup 1 \n2:\tfrom 10.2.0.5 lookup 2 \n32766:\tfrom all lookup main \n",
            ),
        ],
        routes: &["default via 10.1.0.1 dev eth0 table 1", "default via 10.2.0.1 dev eth1 table 2"],
        found: &["route:routing:no-default-in-main"],
    },
    Case {
        what: "/etc/network/interfaces as a cloud's first boot writes it",
        files: &[(
            "network/interfaces",
            "# written at boot\nauto lo\niface lo inet loopback\n    dns-nameservers 10.0.0.2\n\nauto eth0\niface eth0 inet static\n    \
             address 10.1.0.5/24\n    gateway 10.1.0.1\n    mtu 1500\n    post-up route add -net 10.9.0.0 netmask 255.255.0.0 gw 10.1.0.2 metric 3 || true\n    \
             pre-down route del -net 10.9.0.0 netmask 255.255.0.0 gw 10.1.0.2 metric 3 || true\n\n# control-alias eth0\niface eth0 inet6 static\n    \
             address fd00:1::5/64\n    gateway fd00:1::1\n    post-up route add -A inet6 fd09::/48 gw fd00:1::2 || true\n\nauto eth1\niface eth1 inet dhcp\n",
        )],
        routes: &[
            "default via 10.1.0.1 dev eth0",
            "10.9.0.0/16 via 10.1.0.2 dev ? metric 3",
            "default via fd00:1::1 dev eth0",
            "fd09::/48 via fd00:1::2 dev ?",
        ],
        found: &[],
    },
    Case {
        what: "ifupdown with tables by ip: indented, with netmask, $IFACE, sourced files and a mapping beside it",
        files: &[
            (
                "network/interfaces",
                "source /etc/network/interfaces.d/*\nallow-hotplug eth0\niface eth0 inet static\n\taddress 10.1.0.5\n\tnetmask 255.255.255.0\n\tgateway 10.1.0.1\n",
            ),
            (
                "network/interfaces.d/eth1",
                "auto eth1\niface eth1 inet static\n  address 10.2.0.5\n  netmask 24\n  up ip route add default via 10.2.0.1 dev $IFACE table 102\n  \
                 up ip rule add from 10.2.0.5 \\\n    table 102 priority 102\n  down ip rule del from 10.2.0.5 table 102\n",
            ),
        ],
        routes: &["default via 10.1.0.1 dev eth0", "default via 10.2.0.1 dev eth1 table 102"],
        found: &[],
    },
    Case {
        what: "ifupdown: gateway in two stanzas (the classic): ifup of the second says File exists",
        files: &[(
            "network/interfaces",
            "auto eth0\niface eth0 inet static\n  address 10.1.0.5/24\n  gateway 10.1.0.1\nauto eth1\niface eth1 inet static\n  address 10.2.0.5/24\n  \
             gateway 10.2.0.1\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0", "default via 10.2.0.1 dev eth1"],
        found: &["table:contradiction:used-twice"],
    },
    Case {
        what: "ifupdown: two cards in one subnet by source, no default in the main table (forum): unreachable",
        files: &[(
            "network/interfaces",
            "iface eth0 inet static\n  address 10.1.0.5/24\n  post-up ip route add default via 10.1.0.1 dev eth0 table 1\n  \
             post-up ip rule add from 10.1.0.5 table 1 priority 1\niface eth1 inet static\n  address 10.1.0.6/24\n  \
             post-up ip route add default via 10.1.0.1 dev eth1 table 2\n  post-up ip rule add from 10.1.0.6 table 2 priority 2\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0 table 1", "default via 10.1.0.1 dev eth1 table 2"],
        found: &["route:routing:no-default-in-main"],
    },
];
