//! NetworkManager keyfiles, and systemd's .link files with drop-ins for
//! .network files.

use std::fmt::Write;

use clearstream_schema::plan::{LinkAttribute, Setting};

use super::{File, Kept, comment, interfaces};

pub(super) fn unfit_for_network_manager(setting: &Setting, value: &str) -> Option<&'static str> {
    let no_sysctl = "it belongs to no connection: use the format sysctl or shell";
    match setting {
        Setting::Sysctl(_) | Setting::File(_) => Some(no_sysctl),
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
        _ => None,
    }
}

pub(super) fn network_manager(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    interfaces(kept)
        .into_iter()
        .map(|interface| {
            let text = format!(
                "{head}# Not started by itself: merge the groups below into the connection of {interface}.\n\
                 [connection]\nid=clearstream-{interface}\ntype=ethernet\ninterface-name={interface}\nautoconnect=false\n{}",
                keyfile(interface, kept)
            );
            let path = format!("/etc/NetworkManager/system-connections/clearstream-{interface}.nmconnection");
            File { path, mode: 0o600, text }
        })
        .collect()
}

/// nm-settings-keyfile(5), the groups that hold settings of a link.
fn keyfile(interface: &str, kept: &[Kept<'_>]) -> String {
    let (mut ethernet, mut link, mut driver, mut traffic) =
        (String::new(), String::new(), String::new(), String::new());
    for Kept { step, value } in kept {
        if super::interface(&step.setting) != Some(interface) {
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

pub(super) fn unfit_for_networkd(setting: &Setting, value: &str) -> Option<&'static str> {
    match setting {
        Setting::Sysctl(_) | Setting::File(_) => {
            Some("not a setting of a link: use the format sysctl or shell")
        }
        Setting::Ethtool { group, name, .. } if link_key(group, name).is_none() => {
            Some("systemd.link does not know it")
        }
        Setting::Qdisc { .. } => {
            network_section(value).is_none().then_some("systemd.network does not know it")
        }
        _ => None,
    }
}

pub(super) fn networkd(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    let mut files = Vec::new();
    for interface in interfaces(kept) {
        let (mut link, mut network) = (String::new(), String::new());
        for Kept { step, value } in kept {
            if super::interface(&step.setting) != Some(interface) {
                continue;
            }
            let why = comment(&step.reason);
            let _ = match &step.setting {
                Setting::Link { attribute: LinkAttribute::Mtu, .. } => {
                    writeln!(link, "{why}MTUBytes={value}")
                }
                Setting::Link { attribute: LinkAttribute::TransmitQueueLength, .. } => {
                    writeln!(link, "{why}TransmitQueueLength={value}")
                }
                Setting::Ethtool { group, name, .. } => {
                    let (key, unit) = link_key(group, name).unwrap_or_default();
                    let value = match *value {
                        "on" => "yes",
                        "off" => "no",
                        other => other,
                    };
                    writeln!(link, "{why}{key}={value}{unit}")
                }
                Setting::Qdisc { .. } => {
                    write!(network, "\n{why}{}", network_section(value).unwrap_or_default())
                }
                _ => Ok(()),
            };
        }
        if !link.is_empty() {
            // The first .link file that matches is the only one in force, so
            // the lines of systemd's 99-default.link are repeated.
            let text = format!(
                "{head}[Match]\nOriginalName={interface}\n\n[Link]\n\
                 NamePolicy=keep kernel database onboard slot path\nMACAddressPolicy=persistent\n{link}"
            );
            let path = format!("/etc/systemd/network/10-clearstream-{interface}.link");
            files.push(File { path, mode: 0o644, text });
        }
        if !network.is_empty() {
            let text = format!(
                "{head}# A drop-in: belongs into the folder NAME.network.d beside the file NAME.network of {interface}.\n{network}"
            );
            let path = format!("50-clearstream-{interface}.conf");
            files.push(File { path, mode: 0o644, text });
        }
    }
    files
}

/// Key of systemd.link(5) and the unit that it wants after a number.
fn link_key(group: &str, name: &str) -> Option<(&'static str, &'static str)> {
    Some(match (group, name) {
        ("rings", "rx") => ("RxBufferSize", ""),
        ("rings", "rx-mini") => ("RxMiniBufferSize", ""),
        ("rings", "rx-jumbo") => ("RxJumboBufferSize", ""),
        ("rings", "tx") => ("TxBufferSize", ""),
        ("channels", "rx") => ("RxChannels", ""),
        ("channels", "tx") => ("TxChannels", ""),
        ("channels", "other") => ("OtherChannels", ""),
        ("channels", "combined") => ("CombinedChannels", ""),
        ("pause", "rx") => ("RxFlowControl", ""),
        ("pause", "tx") => ("TxFlowControl", ""),
        ("pause", "autoneg") => ("AutoNegotiationFlowControl", ""),
        ("coalesce", "adaptive-rx") => ("UseAdaptiveRxCoalesce", ""),
        ("coalesce", "adaptive-tx") => ("UseAdaptiveTxCoalesce", ""),
        ("coalesce", "rx-usecs") => ("RxCoalesceSec", "us"),
        ("coalesce", "tx-usecs") => ("TxCoalesceSec", "us"),
        ("coalesce", "rx-frames") => ("RxMaxCoalescedFrames", ""),
        ("coalesce", "tx-frames") => ("TxMaxCoalescedFrames", ""),
        ("features", "tx-tcp-segmentation") => ("TCPSegmentationOffload", ""),
        ("features", "tx-tcp6-segmentation") => ("TCP6SegmentationOffload", ""),
        ("features", "tx-generic-segmentation" | "generic-segmentation-offload") => {
            ("GenericSegmentationOffload", "")
        }
        ("features", "rx-gro" | "generic-receive-offload") => ("GenericReceiveOffload", ""),
        ("features", "rx-lro" | "large-receive-offload") => ("LargeReceiveOffload", ""),
        ("features", "rx-checksum") => ("ReceiveChecksumOffload", ""),
        _ => return None,
    })
}

/// A section of systemd.network(5) for a qdisc; `None` for kinds and
/// parameters that it does not have.
fn network_section(value: &str) -> Option<String> {
    let mut words = value.split(' ');
    let kind = words.next()?;
    let section = match kind {
        "fq" => "FairQueueing",
        "fq_codel" => "FairQueueingControlledDelay",
        "tbf" => "TokenBucketFilter",
        "pfifo" => "PFIFO",
        "bfifo" => "BFIFO",
        "pfifo_fast" => "PFIFOFast",
        _ => return None,
    };
    let mut text = format!("[{section}]\nParent=root\n");
    while let Some(word) = words.next() {
        let line = match (kind, word) {
            ("fq", "pacing") => "Pacing=yes".to_owned(),
            ("fq", "nopacing") => "Pacing=no".to_owned(),
            ("fq_codel", "ecn") => "ECN=yes".to_owned(),
            ("fq_codel", "noecn") => "ECN=no".to_owned(),
            _ => {
                let value = words.next()?;
                format!("{}={}", network_key(kind, word)?, network_value(value))
            }
        };
        let _ = writeln!(text, "{line}");
    }
    Some(text)
}

fn network_key(kind: &str, word: &str) -> Option<&'static str> {
    Some(match (kind, word) {
        ("fq" | "fq_codel" | "pfifo", "limit") => "PacketLimit",
        ("bfifo" | "tbf", "limit") => "LimitBytes",
        ("fq", "flow_limit") => "FlowLimit",
        ("fq", "maxrate") => "MaximumRate",
        ("fq", "buckets") => "Buckets",
        ("fq", "orphan_mask") => "OrphanMask",
        ("fq" | "fq_codel", "quantum") => "QuantumBytes",
        ("fq", "initial_quantum") => "InitialQuantumBytes",
        ("fq" | "fq_codel", "ce_threshold") => "CEThresholdSec",
        ("fq_codel", "flows") => "Flows",
        ("fq_codel", "target") => "TargetSec",
        ("fq_codel", "interval") => "IntervalSec",
        ("fq_codel", "memory_limit") => "MemoryLimitBytes",
        ("tbf", "rate") => "Rate",
        ("tbf", "burst") => "BurstBytes",
        ("tbf", "latency") => "LatencySec",
        ("tbf", "peakrate") => "PeakRate",
        ("tbf", "mtu") => "MTUBytes",
        _ => return None,
    })
}

/// Rates are bits per second with decimal K, M, G; sizes binary; counts plain.
fn network_value(value: &str) -> String {
    let lower = value.to_ascii_lowercase();
    if let Some(number) = lower.strip_suffix("bit") {
        return number.to_ascii_uppercase();
    }
    match lower.strip_suffix(['p', 'b']) {
        Some(number) if !number.is_empty() => number.to_ascii_uppercase(),
        _ => lower,
    }
}
