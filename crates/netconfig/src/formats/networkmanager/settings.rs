//! Settings of links in keyfiles.

use std::fmt::Write;

use clearstream_schema::plan::{LinkAttribute, Setting};

use crate::settings::{File, Kept, interfaces};

pub(super) fn unfit(setting: &Setting, value: &str) -> Option<&'static str> {
    match setting {
        // nm-settings(5), tc.qdiscs: attributes of these two alone are known.
        Setting::Qdisc { .. } => {
            let takes = value.starts_with("fq_codel") || value.starts_with("tbf") || !value.contains(' ');
            (!takes).then_some("NetworkManager knows no parameters of this qdisc")
        }
        Setting::Ethtool { group, name, .. } if group == "coalesce" && name.starts_with("cqe-mode") => {
            Some("NetworkManager does not know it")
        }
        Setting::Ethtool { group, name, .. } if group == "features" => {
            nm_feature(name).is_none().then_some("NetworkManager does not know this feature")
        }
        Setting::Ethtool { .. } | Setting::Link { .. } => None,
        _ => Some("it belongs to no connection: use the format sysctl or shell"),
    }
}

pub(super) fn files(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    interfaces(kept)
        .into_iter()
        .map(|interface| {
            let text = format!(
                "{head}# Not started by itself: merge the groups below into the connection of {interface}.\n\
                 [connection]\nid=clearstream-{interface}\ntype=ethernet\ninterface-name={interface}\nautoconnect=false\n{}",
                keyfile(&interface, kept)
            );
            let path = format!("/etc/NetworkManager/system-connections/clearstream-{interface}.nmconnection");
            File { path, mode: 0o600, text }
        })
        .collect()
}

/// nm-settings-keyfile(5), the groups that hold settings of a link.
fn keyfile(name: &str, kept: &[Kept<'_>]) -> String {
    let (mut ethernet, mut link, mut driver, mut traffic) =
        (String::new(), String::new(), String::new(), String::new());
    for Kept { step, value } in kept {
        if step.setting.interface().as_deref() != Some(name) {
            continue;
        }
        let _ = match &step.setting {
            Setting::Link { attribute: LinkAttribute::Mtu, .. } => writeln!(ethernet, "mtu={value}"),
            Setting::Link { attribute: LinkAttribute::TransmitQueueLength, .. } => {
                writeln!(link, "tx-queue-length={value}")
            }
            Setting::Qdisc { .. } => writeln!(traffic, "qdisc.root={value}"),
            Setting::Ethtool { group, name, .. } => writeln!(driver, "{}", nm_ethtool(group, name, value)),
            _ => Ok(()),
        };
    }
    let groups = [("ethernet", ethernet), ("link", link), ("ethtool", driver), ("tc", traffic)];
    let full = groups.into_iter().filter(|(_, lines)| !lines.is_empty());
    full.map(|(name, lines)| format!("\n[{name}]\n{lines}")).collect()
}

/// Features by the names of nm-settings(5), property `feature-*` of `ethtool`
/// (NetworkManager 1.42).
const NM_FEATURES: &str = "esp-hw-offload esp-tx-csum-hw-offload fcoe-mtu gro gso highdma hw-tc-offload l2-fwd-offload \
    loopback lro macsec-hw-offload ntuple rx rx-all rx-fcs rx-gro-hw rx-gro-list \
    rx-udp-gro-forwarding rx-udp_tunnel-port-offload rx-vlan-filter rx-vlan-stag-filter \
    rx-vlan-stag-hw-parse rxhash rxvlan sg tls-hw-record tls-hw-rx-offload tls-hw-tx-offload tso tx \
    tx-checksum-fcoe-crc tx-checksum-ip-generic tx-checksum-ipv4 tx-checksum-ipv6 tx-checksum-sctp \
    tx-esp-segmentation tx-fcoe-segmentation tx-gre-csum-segmentation tx-gre-segmentation \
    tx-gso-list tx-gso-partial tx-gso-robust tx-ipxip4-segmentation tx-ipxip6-segmentation \
    tx-nocache-copy tx-scatter-gather tx-scatter-gather-fraglist tx-sctp-segmentation \
    tx-tcp-ecn-segmentation tx-tcp-mangleid-segmentation tx-tcp-segmentation tx-tcp6-segmentation \
    tx-tunnel-remcsum-segmentation tx-udp-segmentation tx-udp_tnl-csum-segmentation \
    tx-udp_tnl-segmentation tx-vlan-stag-hw-insert txvlan";

/// NetworkManager's name of a feature: the kernel's, or for old ones that of ethtool(8).
fn nm_feature(name: &str) -> Option<&str> {
    let theirs = match name {
        "rx-gro" | "generic-receive-offload" => "gro",
        "tx-generic-segmentation" | "generic-segmentation-offload" => "gso",
        "tcp-segmentation-offload" => "tso",
        "rx-lro" | "large-receive-offload" => "lro",
        "rx-checksum" => "rx",
        "rx-hashing" => "rxhash",
        "rx-ntuple-filter" => "ntuple",
        "rx-vlan-hw-parse" => "rxvlan",
        "tx-vlan-hw-insert" => "txvlan",
        same => same,
    };
    NM_FEATURES.split(' ').find(|known| *known == theirs)
}

fn nm_ethtool(group: &str, name: &str, value: &str) -> String {
    let truth = if value == "on" { "true" } else { "false" };
    match group {
        "features" => format!("feature-{}={truth}", nm_feature(name).unwrap_or(name)),
        "pause" => format!("pause-{name}={truth}"),
        "rings" => format!("ring-{name}={value}"),
        "coalesce" => {
            let number = match value {
                "on" => "1",
                "off" => "0",
                other => other,
            };
            format!("coalesce-{name}={number}")
        }
        _ => format!("{group}-{name}={value}"),
    }
}
