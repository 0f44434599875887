//! Scripts whose commands a shell makes first: loops, functions, here-documents, defaults. Each is played in a namespace
//! too, so that its routes are what the shell and the kernel make of it.

use super::Case;

pub(super) const CASES: &[Case] = &[
    Case {
        what: "a loop over cards: the body for each of them",
        files: &[(
            "play.sh",
            "for i in 0 1; do\n  n=$((i + 1))\n  ip addr add 10.$n.0.5/24 dev e$i\n  ip route add 10.10$n.0.0/16 via 10.$n.0.1 dev e$i\n\
             done\n",
        )],
        routes: &["10.101.0.0/16 via 10.1.0.1 dev e0", "10.102.0.0/16 via 10.2.0.1 dev e1"],
        found: &[],
    },
    Case {
        what: "a loop that loosens the filter of each card: what comes by the second one passes",
        files: &[(
            "play.sh",
            "sysctl -qw net.ipv4.conf.all.rp_filter=1\nfor i in e0 e1; do\n  sysctl -qw net.ipv4.conf.$i.rp_filter=2\ndone\n\
             ip addr add 10.1.0.5/24 dev e0\nip addr add 10.2.0.5/24 dev e1\n\
             ip route add 10.20.0.0/16 via 10.1.0.1 dev e0\nip route add 10.20.0.0/16 via 10.2.0.1 dev e1 metric 5\n",
        )],
        routes: &["10.20.0.0/16 via 10.1.0.1 dev e0", "10.20.0.0/16 via 10.2.0.1 dev e1 metric 5"],
        found: &[],
    },
    Case {
        what: "the same on one line, with one gateway that is on no network: refused",
        files: &[(
            "play.sh",
            "ip addr add 10.1.0.5/24 dev e0; for g in 10.1.0.1 10.7.0.1; do ip route append default via $g dev e0; done\n",
        )],
        routes: &["default via 10.1.0.1 dev e0", "default via 10.7.0.1 dev e0"],
        found: &["gateway:range:outside-every-subnet", "table:contradiction:used-twice"],
    },
    Case {
        what: "a loop by seq inside of a loop",
        files: &[(
            "play.sh",
            "ip addr add 10.1.0.5/24 dev e0\nfor a in 20 30\ndo\n  for b in $(seq 1 2)\n  do\n    ip route add 10.$a.$b.0/24 via 10.1.0.$b dev e0\n\
             \x20 done\ndone\n",
        )],
        routes: &[
            "10.20.1.0/24 via 10.1.0.1 dev e0",
            "10.20.2.0/24 via 10.1.0.2 dev e0",
            "10.30.1.0/24 via 10.1.0.1 dev e0",
            "10.30.2.0/24 via 10.1.0.2 dev e0",
        ],
        found: &[],
    },
    Case {
        what: "a function with arguments, called twice",
        files: &[(
            "play.sh",
            "CARD=e0\nadd_route() {\n  local net=\"$1\"\n  ip route add \"$net\" via \"$2\" dev \"$CARD\" metric ${3:-5}\n}\n\
             ip addr add 10.1.0.5/24 dev $CARD\nadd_route 10.20.0.0/16 10.1.0.1\nadd_route 10.30.0.0/16 10.1.0.2 7\n",
        )],
        routes: &["10.20.0.0/16 via 10.1.0.1 dev e0 metric 5", "10.30.0.0/16 via 10.1.0.2 dev e0 metric 7"],
        found: &[],
    },
    Case {
        what: "a function that calls another, with the mistake in its argument",
        files: &[(
            "play.sh",
            "uplink()\n{\n  ip addr add $2 dev $1\n  gateway $1 $3\n}\ngateway() { ip route add default via $2 dev $1; }\n\
             uplink e0 10.1.0.5/24 10.1.0.1\nuplink e1 10.2.0.5/24 10.7.0.1 || true\n",
        )],
        routes: &["default via 10.1.0.1 dev e0", "default via 10.7.0.1 dev e1"],
        found: &["gateway:range:outside-every-subnet", "table:contradiction:used-twice"],
    },
    Case {
        what: "rows of a here-document, read by a loop",
        files: &[(
            "play.sh",
            "ip addr add 10.1.0.5/24 dev e0\nwhile read net gw rest; do\n  ip route add $net via $gw dev e0\ndone <<EOF\n10.20.0.0/16 10.1.0.1\n\
             10.30.0.0/16 10.1.0.2 spare\nEOF\n",
        )],
        routes: &["10.20.0.0/16 via 10.1.0.1 dev e0", "10.30.0.0/16 via 10.1.0.2 dev e0"],
        found: &[],
    },
    Case {
        what: "what a script writes to a file is no command of it",
        files: &[(
            "play.sh",
            "cat >/dev/null <<EOF\nip route add 10.66.0.0/16 via 10.1.0.1\nEOF\nip addr add 10.1.0.5/24 dev e0\n\
             ip route add 10.20.0.0/16 via 10.1.0.1 dev e0\n",
        )],
        routes: &["10.20.0.0/16 via 10.1.0.1 dev e0"],
        found: &[],
    },
    Case {
        what: "defaults of arguments and of the environment",
        files: &[(
            "play.sh",
            "CARD=${1:-e0}\nGW=\"${GW:-10.1.0.1}\"\nip addr add 10.1.0.5/24 dev $CARD\nip route add 10.20.0.0/16 via $GW dev $CARD || true\n\
             [ -n \"$GW\" ] && ip route replace default via $GW dev $CARD\n",
        )],
        routes: &["10.20.0.0/16 via 10.1.0.1 dev e0", "default via 10.1.0.1 dev e0"],
        found: &[],
    },
    Case {
        what: "a command that is put together in a variable: next hops of a list",
        files: &[(
            "play.sh",
            "ip addr add 10.1.0.5/24 dev e0\ncommand=\"ip route add 10.20.0.0/16\"\nfor g in 10.1.0.1 10.1.0.2 10.1.0.3; do\n  \
             command=\"$command nexthop via $g dev e0\"\ndone\n$command\n",
        )],
        routes: &["10.20.0.0/16 via 10.1.0.1*1 dev e0,10.1.0.2*1 dev e0,10.1.0.3*1 dev e0"],
        found: &[],
    },
    Case {
        what: "a variable that is set again: each command has the value of its moment",
        files: &[(
            "play.sh",
            "ip addr add 10.1.0.5/24 dev e0\nGW=10.1.0.1\nip route add 10.20.0.0/16 via $GW dev e0\nGW=10.1.0.2\nip route add 10.30.0.0/16 via $GW dev e0\n",
        )],
        routes: &["10.20.0.0/16 via 10.1.0.1 dev e0", "10.30.0.0/16 via 10.1.0.2 dev e0"],
        found: &[],
    },
    Case {
        what: "arguments of ip that are shortened: prio, pref, tab",
        files: &[(
            "play.sh",
            "ip a add 10.1.0.5/24 dev e0\nip ru a from 10.1.0.5 prio 100 tab 7\nip ru a to 10.20.0.0/16 pref 101 lookup 7\n\
             ip ro a default via 10.1.0.1 dev e0 table 7\nip ro a default via 10.1.0.1 dev e0 prio 5\n",
        )],
        routes: &["default via 10.1.0.1 dev e0 table 7", "default via 10.1.0.1 dev e0 metric 5"],
        found: &[],
    },
    Case {
        what: "a guard behind the table of a tunnel: what drops is no rule that never applies",
        files: &[(
            "play.sh",
            "ip address add 10.1.0.5/24 dev e0\nip route add default via 10.1.0.1 dev e0\nip route add default dev e1 table 200\n\
             ip rule add from 10.1.0.5 table 200 priority 200\nip rule add from 10.1.0.5 priority 201 unreachable\n",
        )],
        routes: &["default via 10.1.0.1 dev e0", "default dev e1 table 200"],
        found: &[],
    },
    Case {
        what: "start and stop of one script: what stop deletes is what start adds",
        files: &[(
            "balance.sh",
            "#!/bin/sh\nIP=/sbin/ip\nset_up() {\n  echo \" - tables\" >>/dev/stdout\n  $IP address add 10.1.0.5/24 dev e0\n  \
             $IP route add default via 10.1.0.1 dev e0 table 10\n  $IP rule add from 10.1.0.5 table 10 prio 10\n}\ncase \"$1\" in\n  start)\n    \
             set_up\n    $IP route add default via 10.1.0.1 dev e0\n    ;;\n  stop)\n    $IP rule del from 10.1.0.5 table 10\n    \
             $IP route flush table 10\n    ;;\nesac\n",
        )],
        routes: &["default via 10.1.0.1 dev e0", "default via 10.1.0.1 dev e0 table 10"],
        found: &[],
    },
    Case {
        what: "a route for one kind of hosts, another for the rest: one of the two is there",
        files: &[(
            "hosts.sh",
            "#!/bin/bash\nif [[ $(hostname) == a ]]; then\n  sudo ip route replace 10.20.0.0/16 \\\n    nexthop via 10.1.0.1 dev e0 \\\n    \
             nexthop via 10.1.0.2 dev e0\nelif [[ $(hostname) == b ]]; then\n  sudo ip route replace 10.20.0.0/16 via 10.1.0.9 dev e0\nfi\n",
        )],
        routes: &["10.20.0.0/16 via 10.1.0.1*1 dev e0,10.1.0.2*1 dev e0", "10.20.0.0/16 via 10.1.0.9 dev e0"],
        found: &[],
    },
];
