//! States of nmstate, alone and inside documents of Kubernetes and OpenShift, and variables of Ansible's network role.

use super::Case;

/// Two hosts of an installation.
pub(super) const AGENT: &str = "apiVersion: v1beta1\nkind: AgentConfig\nmetadata: {name: lab}\nhosts:\n\
    - hostname: node-a\n  networkConfig:\n    interfaces:\n    - name: eno1\n      type: ethernet\n      state: up\n      \
    ipv4: {enabled: true, dhcp: false, address: [{ip: 10.1.0.5, prefix-length: 24}]}\n    routes:\n      config:\n      \
    - {destination: 0.0.0.0/0, next-hop-address: 10.1.0.1, next-hop-interface: eno1}\n\
    - hostname: node-b\n  networkConfig:\n    interfaces:\n    - name: eno1\n      type: ethernet\n      state: up\n      \
    ipv4: {enabled: true, dhcp: false, address: [{ip: 10.1.0.6, prefix-length: 24}]}\n    routes:\n      config:\n      \
    - {destination: 0.0.0.0/0, next-hop-address: 10.1.0.1, next-hop-interface: eno1}\n";

pub(super) const CASES: &[Case] = &[
    Case {
        what: "a policy of Kubernetes: the state below spec.desiredState",
        files: &[(
            "policy.yaml",
            "apiVersion: nmstate.io/v1\nkind: NodeNetworkConfigurationPolicy\nmetadata: {name: storage}\nspec:\n  \
             nodeSelector: {role: worker}\n  desiredState:\n    interfaces:\n    - name: eth1\n      type: ethernet\n      state: up\n      \
             ipv4:\n        enabled: true\n        dhcp: false\n        address:\n        - {ip: 10.2.0.5, prefix-length: 24}\n    \
             routes:\n      config:\n      - destination: 10.9.0.0/16\n        next-hop-address: 10.2.0.1\n        next-hop-interface: eth1\n        \
             metric: 150\n        table-id: 254\n",
        )],
        routes: &["10.9.0.0/16 via 10.2.0.1 dev eth1 metric 150"],
        found: &[],
    },
    Case {
        what: "a policy with a mistake: the gateway is on no network of the card",
        files: &[(
            "policy.yaml",
            "apiVersion: nmstate.io/v1\nkind: NodeNetworkConfigurationPolicy\nspec:\n  desiredState:\n    interfaces:\n    - name: eth1\n      \
             type: ethernet\n      ipv4: {enabled: true, address: [{ip: 10.2.0.5, prefix-length: 24}]}\n    routes:\n      config:\n      \
             - {destination: 10.9.0.0/16, next-hop-address: 10.3.0.1, next-hop-interface: eth1}\n",
        )],
        routes: &["10.9.0.0/16 via 10.3.0.1 dev eth1 metric 100"],
        found: &["gateway:range:outside-every-subnet"],
    },
    Case {
        what: "hosts of an agent-based installation",
        files: &[("agent-config.yaml", AGENT)],
        routes: &["default via 10.1.0.1 dev eno1 metric 100"],
        found: &[],
    },
    Case {
        what: "two default routes of IPv6 and one metric (issue): both are used",
        files: &[(
            "state.yml",
            "interfaces:\n- name: eth0\n  type: ethernet\n  state: up\n  ipv6: {enabled: true, address: [{ip: 'fd00:1::5', prefix-length: 64}]}\n\
             routes:\n  config:\n  - {destination: '::/0', next-hop-address: 'fd00:1::1', next-hop-interface: eth0, metric: 100}\n  \
             - {destination: '::/0', next-hop-address: 'fd00:1::2', next-hop-interface: eth0, metric: 100}\n",
        )],
        routes: &["default via fd00:1::1 dev eth0 metric 100", "default via fd00:1::2 dev eth0 metric 100"],
        found: &[],
    },
    Case {
        what: "nmstate as JSON",
        files: &[(
            "state.json",
            "{\"interfaces\": [{\"name\": \"eth1\", \"type\": \"ethernet\", \"ipv4\": {\"enabled\": true, \"address\": \
             [{\"ip\": \"10.2.0.5\", \"prefix-length\": 24}]}}], \"routes\": {\"config\": [{\"destination\": \"10.9.0.0/16\", \
             \"next-hop-address\": \"10.2.0.1\", \"next-hop-interface\": \"eth1\", \"metric\": 7}]}}\n",
        )],
        routes: &["10.9.0.0/16 via 10.2.0.1 dev eth1 metric 7"],
        found: &[],
    },
    Case {
        what: "nmstate: a VRF with a port",
        files: &[(
            "state.yml",
            "interfaces:\n- name: blue\n  type: vrf\n  state: up\n  vrf: {port: [eth1], route-table-id: 10}\n- name: eth1\n  type: ethernet\n  \
             state: up\n  ipv4: {enabled: true, address: [{ip: 10.2.0.5, prefix-length: 24}]}\nroutes:\n  config:\n  \
             - {destination: 0.0.0.0/0, next-hop-address: 10.2.0.1, next-hop-interface: eth1, table-id: 10, metric: 5}\n",
        )],
        routes: &["default via 10.2.0.1 dev eth1 table 10 metric 5"],
        found: &[],
    },
    Case {
        what: "Ansible's network role: two connections with gateways, one with a metric",
        files: &[(
            "host_vars.yml",
            "network_connections:\n  - name: front\n    interface_name: eth0\n    type: ethernet\n    ip:\n      dhcp4: false\n      auto6: false\n      \
             address: [10.1.0.5/24]\n      gateway4: 10.1.0.1\n  - name: back\n    interface_name: eth1\n    type: ethernet\n    ip:\n      \
             dhcp4: false\n      auto6: false\n      address: [10.2.0.5/24]\n      gateway4: 10.2.0.1\n      route_metric4: 400\n",
        )],
        routes: &["default via 10.1.0.1 dev eth0 metric 100", "default via 10.2.0.1 dev eth1 metric 400"],
        found: &[],
    },
];
