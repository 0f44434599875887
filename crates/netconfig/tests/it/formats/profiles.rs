//! Profiles of NetworkManager and files of the network scripts.

use super::Case;

pub(super) const CASES: &[Case] = &[
    Case {
        what: "two cards, each with a gateway and a metric of its own (how-to): both default routes are there",
        files: &[
            (
                "system-connections/one.nmconnection",
                "[connection]\nid=one\ntype=ethernet\ninterface-name=eth0\n\n[ipv4]\nmethod=manual\n\
                 address1=10.1.0.5/24,10.1.0.1\nroute-metric=100\n",
            ),
            (
                "system-connections/two.nmconnection",
                "[connection]\nid=two\ntype=ethernet\ninterface-name=eth1\n\n[ipv4]\nmethod=manual\n\
                 address1=10.2.0.5/24,10.2.0.1\nroute-metric=200\n",
            ),
        ],
        routes: &["default via 10.1.0.1 dev eth0 metric 100", "default via 10.2.0.1 dev eth1 metric 200"],
        found: &[],
    },
    Case {
        what: "the same without metrics: NetworkManager gives 100 and 101",
        files: &[
            (
                "system-connections/one.nmconnection",
                "[connection]\nid=one\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddress1=10.1.0.5/24,10.1.0.1\n",
            ),
            (
                "system-connections/two.nmconnection",
                "[connection]\nid=two\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=manual\naddress1=10.2.0.5/24\n\
                 gateway=10.2.0.1\nroute1=10.9.0.0/16,10.2.0.2\n",
            ),
        ],
        routes: &[
            "default via 10.1.0.1 dev eth0 metric 100",
            "default via 10.2.0.1 dev eth1 metric 101",
            "10.9.0.0/16 via 10.2.0.2 dev eth1 metric 101",
        ],
        found: &[],
    },
    Case {
        what: "never-default on the second card (image of a small computer): its gateway makes no route",
        files: &[
            (
                "system-connections/one.nmconnection",
                "[connection]\nid=one\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddress1=10.1.0.5/24,10.1.0.1\n",
            ),
            (
                "system-connections/two.nmconnection",
                "[connection]\nid=two\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=manual\n\
                 address1=10.2.0.5/24,10.2.0.1\nnever-default=true\n",
            ),
        ],
        routes: &["default via 10.1.0.1 dev eth0 metric 100"],
        found: &[],
    },
    Case {
        what: "metrics by type: InfiniBand 150, bond 300, VLAN 400",
        files: &[
            (
                "system-connections/b.nmconnection",
                "[connection]\nid=b\ntype=bond\ninterface-name=bond0\n[ipv4]\nmethod=manual\naddress1=10.1.0.5/24,10.1.0.1\n",
            ),
            (
                "system-connections/i.nmconnection",
                "[connection]\nid=i\ntype=infiniband\ninterface-name=ib0\n[ipv4]\nmethod=manual\naddress1=10.2.0.5/24\n\
                 route1=10.20.0.0/16,10.2.0.1\n",
            ),
            (
                "system-connections/v.nmconnection",
                "[connection]\nid=v\ntype=vlan\ninterface-name=eth0.7\n[ipv4]\nmethod=manual\naddress1=10.3.0.5/24\n\
                 route1=10.30.0.0/16,10.3.0.1\nroute2=10.31.0.0/16,10.3.0.1,5\n",
            ),
        ],
        routes: &[
            "default via 10.1.0.1 dev bond0 metric 300",
            "10.20.0.0/16 via 10.2.0.1 dev ib0 metric 150",
            "10.30.0.0/16 via 10.3.0.1 dev eth0.7 metric 400",
            "10.31.0.0/16 via 10.3.0.1 dev eth0.7 metric 5",
        ],
        found: &[],
    },
    Case {
        what: "route-table with a rule by destination (sensor board): the card's own network is in that table",
        files: &[(
            "system-connections/sensor.nmconnection",
            "[connection]\nid=sensor\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=manual\naddress1=192.168.11.2/24\n\
             route-table=100\nrouting-rule1=priority 100 to 192.168.11.0/24 table 100\n",
        )],
        routes: &[],
        found: &[],
    },
    Case {
        what: "route-table with a rule by source alone (storage card): the main table loses the storage network",
        files: &[
            (
                "system-connections/front.nmconnection",
                "[connection]\nid=front\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\n\
                 address1=10.1.0.5/24,10.1.0.1\n",
            ),
            (
                "system-connections/back.nmconnection",
                "[connection]\nid=back\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=manual\n\
                 address1=10.2.0.5/24,10.2.0.1\nroute-table=200\nrouting-rule1=priority 200 from 10.2.0.5 table 200\n",
            ),
        ],
        routes: &[
            "default via 10.1.0.1 dev eth0 metric 101",
            "default via 10.2.0.1 dev eth1 table 200 metric 100",
        ],
        found: &["route:routing:network-left-main"],
    },
    Case {
        what: "by link address alone, as a cloud's first boot writes it",
        files: &[(
            "system-connections/cloud-init-eth0.nmconnection",
            "[connection]\nid=cloud-init eth0\ntype=ethernet\n[ethernet]\nmac-address=52:54:00:00:00:01\n\n[ipv4]\n\
             method=manual\nmay-fail=false\naddress1=10.1.0.5/24\nroute1=0.0.0.0/0,10.1.0.1\n",
        )],
        routes: &["default via 10.1.0.1 dev 52:54:00:00:00:01 metric 100"],
        found: &[],
    },
    Case {
        what: "a rule without priority: NetworkManager ignores it",
        files: &[(
            "system-connections/x.nmconnection",
            "[connection]\nid=x\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=manual\naddress1=10.2.0.5/24\n\
             route1=0.0.0.0/0,10.2.0.1\nroute1_options=table=7\nrouting-rule1=from 10.2.0.5 table 7\n",
        )],
        routes: &["default via 10.2.0.1 dev eth1 table 7 metric 100"],
        found: &["rule:no-op:not-taken"],
    },
    Case {
        what: "a gateway of another network: NetworkManager asks for it on the link, and nobody is there",
        files: &[(
            "system-connections/x.nmconnection",
            "[connection]\nid=x\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=manual\naddress1=10.2.0.5/24\n\
             route1=10.9.0.0/16,10.20.0.1\n",
        )],
        routes: &["10.9.0.0/16 via 10.20.0.1 dev eth1 metric 100"],
        found: &["gateway:range:outside-every-subnet"],
    },
    Case {
        what: "a single address with a gateway elsewhere (hosting provider): NetworkManager makes it a neighbour",
        files: &[(
            "system-connections/x.nmconnection",
            "[connection]\nid=x\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddress1=192.0.2.7/32\n\
             gateway=198.51.100.1\n",
        )],
        routes: &["default via 198.51.100.1 dev eth0 metric 100"],
        found: &[],
    },
    Case {
        what: "two gateways of one metric: one is used",
        files: &[
            (
                "system-connections/one.nmconnection",
                "[connection]\nid=one\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\n\
                 address1=10.1.0.5/24,10.1.0.1\nroute-metric=50\n",
            ),
            (
                "system-connections/two.nmconnection",
                "[connection]\nid=two\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=manual\n\
                 address1=10.2.0.5/24,10.2.0.1\nroute-metric=50\n",
            ),
        ],
        routes: &["default via 10.1.0.1 dev eth0 metric 50", "default via 10.2.0.1 dev eth1 metric 50"],
        found: &["table:contradiction:used-twice"],
    },
    Case {
        what: "a VRF with its port (keyfiles): its table needs no rule",
        files: &[
            (
                "system-connections/blue.nmconnection",
                "[connection]\nid=blue\ntype=vrf\ninterface-name=blue\n[vrf]\ntable=10\n[ipv4]\nmethod=disabled\n\
                 [ipv6]\nmethod=disabled\n",
            ),
            (
                "system-connections/port.nmconnection",
                "[connection]\nid=port\ntype=ethernet\ninterface-name=eth1\nmaster=blue\nslave-type=vrf\n[ipv4]\n\
                 method=manual\naddress1=10.2.0.5/24\nroute1=0.0.0.0/0,10.2.0.1\nroute1_options=table=10\n",
            ),
        ],
        routes: &["default via 10.2.0.1 dev eth1 table 10 metric 100"],
        found: &[],
    },
    Case {
        what: "DHCP on the first card, a static route on the second: the default route comes at run time",
        files: &[
            (
                "system-connections/one.nmconnection",
                "[connection]\nid=one\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=auto\n",
            ),
            (
                "system-connections/two.nmconnection",
                "[connection]\nid=two\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=manual\naddress1=10.2.0.5/24\n\
                 route1=10.9.0.0/16,10.2.0.1\nroute2=0.0.0.0/0,10.2.0.1\nroute2_options=table=7\n\
                 routing-rule1=priority 7 from 10.2.0.5 table 7\n",
            ),
        ],
        routes: &[
            "10.9.0.0/16 via 10.2.0.1 dev eth1 metric 101",
            "default via 10.2.0.1 dev eth1 table 7 metric 101",
        ],
        found: &[],
    },
    Case {
        what: "the older lists of addresses and routes",
        files: &[(
            "system-connections/old.nmconnection",
            "[connection]\nid=old\ntype=802-3-ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddresses1=10.1.0.5;24;10.1.0.1;\n\
             routes1=10.9.0.0;16;10.1.0.2;7;\n",
        )],
        routes: &["10.9.0.0/16 via 10.1.0.2 dev eth0 metric 7", "default via 10.1.0.1 dev eth0 metric 100"],
        found: &[],
    },
    Case {
        what: "ifcfg without a length: by the class of the address",
        files: &[(
            "network-scripts/ifcfg-eth0",
            "DEVICE=eth0\nBOOTPROTO=none\nIPADDR=192.168.7.5\nGATEWAY=192.168.7.1\n",
        )],
        routes: &["default via 192.168.7.1 dev eth0"],
        found: &[],
    },
    Case {
        what: "ifcfg: two gateways with IPV4_ROUTE_METRIC",
        files: &[
            (
                "network-scripts/ifcfg-eth0",
                "DEVICE=eth0\nBOOTPROTO=none\nIPADDR=10.1.0.5\nPREFIX=24\nGATEWAY=10.1.0.1\nIPV4_ROUTE_METRIC=100\nONBOOT=yes\n",
            ),
            (
                "network-scripts/ifcfg-eth1",
                "DEVICE=eth1\nBOOTPROTO=none\nIPADDR=10.2.0.5\nPREFIX=24\nGATEWAY=10.2.0.1\nIPV4_ROUTE_METRIC=200\nONBOOT=yes\n",
            ),
        ],
        routes: &["default via 10.1.0.1 dev eth0 metric 100", "default via 10.2.0.1 dev eth1 metric 200"],
        found: &[],
    },
    Case {
        what: "ifcfg: GATEWAY in both, without metrics: the network scripts keep one, NetworkManager gives metrics",
        files: &[
            (
                "network-scripts/ifcfg-eth0",
                "DEVICE=eth0\nBOOTPROTO=none\nIPADDR=10.1.0.5\nPREFIX=24\nGATEWAY=10.1.0.1\n",
            ),
            (
                "network-scripts/ifcfg-eth1",
                "DEVICE=eth1\nBOOTPROTO=none\nIPADDR=10.2.0.5\nPREFIX=24\nGATEWAY=10.2.0.1\n",
            ),
        ],
        routes: &["default via 10.1.0.1 dev eth0", "default via 10.2.0.1 dev eth1"],
        found: &[],
    },
    Case {
        what: "ifcfg: DEFROUTE=no, and a default route that discards (cluster image)",
        files: &[
            (
                "network-scripts/ifcfg-eth0",
                "DEVICE=eth0\nBOOTPROTO=none\nIPADDR=10.1.0.5\nPREFIX=24\nGATEWAY=10.1.0.1\nDEFROUTE=no\n",
            ),
            (
                "network-scripts/ifcfg-eth1",
                "DEVICE=eth1\nBOOTPROTO=none\nIPADDR=10.2.0.5\nPREFIX=24\nGATEWAY=10.2.0.1\n",
            ),
            ("network-scripts/route-eth1", "blackhole default metric 200\n"),
        ],
        routes: &["default via 10.2.0.1 dev eth1", "default blackhole metric 200"],
        found: &[],
    },
    Case {
        what: "ifcfg: the file's name is not the device's; options of a numbered route",
        files: &[
            (
                "network-scripts/ifcfg-uplink",
                "DEVICE=eth0\nBOOTPROTO=static\nIPADDR=10.1.0.5\nNETMASK=255.255.255.0\n",
            ),
            (
                "network-scripts/route-uplink",
                "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\nGATEWAY0=10.1.0.1\nOPTIONS0=\"src 10.1.0.5 mtu 1400 table 7\"\n\
                 ADDRESS1=10.8.0.0\nPREFIX1=16\nGATEWAY1=10.1.0.2\nMETRIC1=9\n",
            ),
            ("network-scripts/rule-uplink", "from 10.1.0.5 table 7 priority 7\n"),
        ],
        routes: &["10.9.0.0/16 via 10.1.0.1 dev eth0 table 7", "10.8.0.0/16 via 10.1.0.2 dev eth0 metric 9"],
        found: &[],
    },
    Case {
        what: "ifcfg: two cards in one subnet, a table and a rule for each (cloud documentation)",
        files: &[
            (
                "network-scripts/ifcfg-eth0",
                "DEVICE=eth0\nBOOTPROTO=none\nIPADDR=10.1.0.5\nPREFIX=24\nGATEWAY=10.1.0.1\n",
            ),
            ("network-scripts/ifcfg-eth1", "DEVICE=eth1\nBOOTPROTO=none\nIPADDR=10.1.0.6\nPREFIX=24\n"),
            (
                "network-scripts/route-eth1",
                "10.1.0.0/24 dev eth1 table 2\ndefault via 10.1.0.1 dev eth1 table 2\n",
            ),
            ("network-scripts/rule-eth1", "from 10.1.0.6/32 table 2 priority 2\n"),
        ],
        routes: &[
            "default via 10.1.0.1 dev eth0",
            "10.1.0.0/24 dev eth1 table 2",
            "default via 10.1.0.1 dev eth1 table 2",
        ],
        found: &[],
    },
    Case {
        what: "ifcfg: two cards in one subnet and nothing else (lab notes): the second is dead",
        files: &[
            (
                "network-scripts/ifcfg-ib0",
                "DEVICE=ib0\nBOOTPROTO=static\nIPADDR=10.10.0.5\nNETMASK=255.255.0.0\n",
            ),
            (
                "network-scripts/ifcfg-ib1",
                "DEVICE=ib1\nBOOTPROTO=static\nIPADDR=10.10.0.6\nNETMASK=255.255.0.0\n",
            ),
        ],
        routes: &[],
        found: &["link:routing:same-network-twice"],
    },
    Case {
        what: "ifcfg: three adapters in one network with a strict filter (vendor notes): one finding of each kind",
        files: &[
            ("network-scripts/ifcfg-ib0", "DEVICE=ib0\nIPADDR=10.10.0.5\nPREFIX=16\n"),
            ("network-scripts/ifcfg-ib1", "DEVICE=ib1\nIPADDR=10.10.0.6\nPREFIX=16\n"),
            ("network-scripts/ifcfg-ib2", "DEVICE=ib2\nIPADDR=10.10.0.7\nPREFIX=16\n"),
            ("sysctl.d/90-filter.conf", "net.ipv4.conf.all.rp_filter = 1\n"),
        ],
        routes: &[],
        found: &["link:routing:same-network-twice", "rp_filter:routing:will-drop"],
    },
    Case {
        what: "ifcfg: GATEWAYDEV gives one device the default route",
        files: &[
            ("sysconfig/network", "NETWORKING=yes\nGATEWAYDEV=eth1\n"),
            (
                "sysconfig/network-scripts/ifcfg-eth0",
                "DEVICE=eth0\nIPADDR=10.1.0.5\nPREFIX=24\nGATEWAY=10.1.0.1\n",
            ),
            (
                "sysconfig/network-scripts/ifcfg-eth1",
                "DEVICE=eth1\nIPADDR=10.2.0.5\nPREFIX=24\nGATEWAY=10.2.0.1\n",
            ),
        ],
        routes: &["default via 10.2.0.1 dev eth1"],
        found: &[],
    },
];
