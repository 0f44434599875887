//! Settings of links in systemd's .link files, with drop-ins for .network files.

use std::fmt::Write;

use clearstream_schema::plan::{LinkAttribute, Setting};

use crate::settings::{File, Kept, comment, interfaces};

pub(super) fn unfit(setting: &Setting, value: &str) -> Option<&'static str> {
    match setting {
        Setting::Ethtool { group, name, .. } if link_key(group, name).is_none() => {
            Some("systemd.link does not know it")
        }
        Setting::Qdisc { .. } => {
            network_section(value).is_none().then_some("systemd.network does not know it")
        }
        Setting::Ethtool { .. } | Setting::Link { .. } => None,
        _ => Some("not a setting of a link: use the format sysctl or shell"),
    }
}

pub(super) fn files(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    let mut files = Vec::new();
    for interface in interfaces(kept) {
        let (mut link, mut network) = (String::new(), String::new());
        for Kept { step, value } in kept {
            if step.setting.interface().as_ref() != Some(&interface) {
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
                    let value = match value.as_str() {
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
            // The first .link file that matches is the only one in effect, so
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
    let mut tokens = value.split(' ');
    let kind = tokens.next()?;
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
    while let Some(parameter) = tokens.next() {
        let line = match (kind, parameter) {
            ("fq", "pacing") => "Pacing=yes".to_owned(),
            ("fq", "nopacing") => "Pacing=no".to_owned(),
            ("fq_codel", "ecn") => "ECN=yes".to_owned(),
            ("fq_codel", "noecn") => "ECN=no".to_owned(),
            _ => {
                let value = tokens.next()?;
                format!("{}={}", network_key(kind, parameter)?, network_value(value))
            }
        };
        let _ = writeln!(text, "{line}");
    }
    Some(text)
}

fn network_key(kind: &str, parameter: &str) -> Option<&'static str> {
    Some(match (kind, parameter) {
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
