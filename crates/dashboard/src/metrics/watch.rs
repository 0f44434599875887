//! Metrics of `clearstream route watch`.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use clearstream_schema::watch::{GatewayStatus, PathStatus, WatchStatus};
use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::MetricType::{Counter, Gauge},
};

use super::{Exposition, Family, add, exposition};

/// The text of `/metrics`, of the status of now.
pub fn watch_exposition(status: Arc<Mutex<WatchStatus>>) -> Exposition {
    exposition("clearstream_watch", move || {
        Exposed(status.lock().unwrap_or_else(PoisonError::into_inner).clone())
    })
}

#[derive(Debug)]
struct Exposed(WatchStatus);

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        of_watch(&mut encoder, &self.0)?;
        of_paths(&mut encoder, &self.0)?;
        of_gateways(&mut encoder, &self.0)
    }
}

fn of_watch(encoder: &mut DescriptorEncoder<'_>, status: &WatchStatus) -> fmt::Result {
    let labels = [("host", status.host.as_str()), ("fabric", status.fabric.as_str())];
    let rows: [(Family, f64); 7] = [
        (Family("running_seconds", Gauge, "Time since the watch began."), status.running_ns as f64 / 1e9),
        (Family("served", Counter, "Replies sent to probes of other hosts."), status.served_count as f64),
        (Family("changes", Counter, "Changes of next hops."), status.change_count as f64),
        (
            Family("failed_changes", Counter, "Changes of next hops that the kernel rejected."),
            status.failed_change_count as f64,
        ),
        (
            Family("repairs", Counter, "Next hops changed by somebody else and repaired."),
            status.repair_count as f64,
        ),
        (
            Family("restored", Counter, "Next hops and routes that were taken away and restored."),
            status.restored_count as f64,
        ),
        (Family("ways", Gauge, "Monitored paths to remote networks."), status.paths.len() as f64),
    ];
    for (family, value) in rows {
        add(encoder, family, &[(labels, value)])?;
    }
    Ok(())
}

fn of_paths(encoder: &mut DescriptorEncoder<'_>, status: &WatchStatus) -> fmt::Result {
    type Value = fn(&PathStatus) -> f64;
    let rows: [(Family, Value); 7] = [
        (Family("installed", Gauge, "1 while what `route apply` installed is in effect."), |path| {
            f64::from(u8::from(path.installed))
        }),
        (
            Family(
                "held",
                Gauge,
                "Objects that are not installed because another program's are in their places.",
            ),
            |path| path.missing.iter().filter(|missing| missing.holder.is_some()).count() as f64,
        ),
        (Family("heard", Gauge, "1 while some remote host responds."), |path| {
            f64::from(u8::from(path.reachable))
        }),
        (Family("tcp_targets", Gauge, "Remote hosts that respond to TCP probes."), |path| {
            f64::from(path.tcp_target_count)
        }),
        (
            Family("large_targets", Gauge, "Remote hosts that respond to probes as large as the path takes."),
            |path| f64::from(path.large_target_count),
        ),
        (Family("interval_seconds", Gauge, "Time between rounds while nothing fails."), |path| {
            path.interval_ns as f64 / 1e9
        }),
        (Family("gateways_used", Gauge, "Gateways among the next hops."), |path| {
            path.gateways.iter().filter(|gateway| gateway.used).count() as f64
        }),
    ];
    for (family, value) in rows {
        let samples: Vec<_> = status.paths.iter().map(|path| (path_labels(path), value(path))).collect();
        add(encoder, family, &samples)?;
    }
    Ok(())
}

fn of_gateways(encoder: &mut DescriptorEncoder<'_>, status: &WatchStatus) -> fmt::Result {
    type Value = fn(&GatewayStatus) -> Option<f64>;
    let rows: [(Family, Value); 13] = [
        (Family("gateway_used", Gauge, "1 while it is among the next hops."), |gateway| {
            Some(f64::from(u8::from(gateway.used)))
        }),
        (Family("gateway_drained", Gauge, "1 while an operator has drained it."), |gateway| {
            Some(f64::from(u8::from(gateway.drained)))
        }),
        (Family("gateway_session_up", Gauge, "1 while a routing daemon's BFD session is up."), |gateway| {
            gateway.session_up.map(|up| f64::from(u8::from(up)))
        }),
        (Family("gateway_round_trip_seconds", Gauge, "Last round trip through it."), |gateway| {
            gateway.round_trip_ns.map(|time| time as f64 / 1e9)
        }),
        (Family("gateway_probes_sent", Counter, "Probes sent through it."), |gateway| {
            Some(gateway.counts.sent_count as f64)
        }),
        (Family("gateway_probes_answered", Counter, "Probes with a reply in time."), |gateway| {
            Some(gateway.counts.answered_count as f64)
        }),
        (Family("gateway_probes_lost", Counter, "Probes lost that others carried."), |gateway| {
            Some(gateway.counts.lost_count as f64)
        }),
        (Family("gateway_tcp_probes_sent", Counter, "Probes sent through it by TCP."), |gateway| {
            Some(gateway.counts.tcp_sent_count as f64)
        }),
        (Family("gateway_tcp_probes_answered", Counter, "Probes by TCP with a reply in time."), |gateway| {
            Some(gateway.counts.tcp_answered_count as f64)
        }),
        (Family("gateway_loss_ratio", Gauge, "Fraction of the latest probes that were lost."), |gateway| {
            gateway.loss_ratio
        }),
        (Family("gateway_buckets", Gauge, "Buckets of the resilient group."), |gateway| {
            gateway.bucket_count.map(f64::from)
        }),
        (Family("gateway_outs", Counter, "Times that it was withdrawn."), |gateway| {
            Some(gateway.counts.out_count as f64)
        }),
        (Family("gateway_ins", Counter, "Times that it was restored."), |gateway| {
            Some(gateway.counts.in_count as f64)
        }),
    ];
    for (family, value) in rows {
        let gateways =
            status.paths.iter().flat_map(|path| path.gateways.iter().map(move |gateway| (path, gateway)));
        let samples: Vec<_> = gateways
            .filter_map(|(path, gateway)| {
                let [network, family] = path_labels(path);
                Some(([network, family, ("gateway", gateway.name.clone())], value(gateway)?))
            })
            .collect();
        add(encoder, family, &samples)?;
    }
    Ok(())
}

fn path_labels(path: &PathStatus) -> [(&'static str, String); 2] {
    [("network", path.path.network.clone()), ("family", path.path.family.to_string())]
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use clearstream_schema::watch::{
        Family, GatewayCounts, MissingObject, NeighbourState, NetworkPath, OutReason, WATCH_STATUS_SCHEMA,
    };

    use super::*;
    use crate::{Content, Dashboard};

    fn status() -> WatchStatus {
        let gateway = |name: &str, used, session_up| GatewayStatus {
            name: name.to_owned(),
            address: "10.100.0.91".parse().unwrap(),
            used,
            drained: false,
            reason: (!used).then_some(OutReason::NoAnswer),
            neighbour: NeighbourState::Known,
            session_up,
            round_trip_ns: Some(250_000),
            loss_ratio: Some(0.125),
            bucket_count: Some(60),
            counts: GatewayCounts { sent_count: 7, answered_count: 5, lost_count: 2, ..Default::default() },
        };
        WatchStatus {
            schema: WATCH_STATUS_SCHEMA.to_owned(),
            version: 1,
            host: "an \"odd\\name\"\n".to_owned(),
            fabric: "gateways-6".to_owned(),
            running_ns: 1_500_000_000,
            served_count: 3,
            change_count: 1,
            failed_change_count: 0,
            repair_count: 0,
            restored_count: 0,
            paths: vec![PathStatus {
                path: NetworkPath { network: "storage".to_owned(), family: Family::Ipv4 },
                interval_ns: 20_000_000,
                targets: vec!["10.10.0.201".parse().unwrap()],
                installed: true,
                missing: vec![MissingObject {
                    what: "route 10.10.0.0/24".to_owned(),
                    holder: Some("proto boot (via 10.100.0.91)".to_owned()),
                }],
                reachable: true,
                tcp_reachable: Some(true),
                tcp_target_count: 2,
                large_target_count: 1,
                large_bytes: Some(9000),
                group: None,
                gateways: vec![gateway("gw1", true, None), gateway("gw2", false, Some(false))],
            }],
        }
    }

    /// Oracle: the parser of the Prometheus client library, over HTTP like a scraper.
    #[test]
    fn a_scraper_reads_the_counters() {
        let content = Content::Metrics(watch_exposition(Arc::new(Mutex::new(status()))));
        let server = Dashboard::start("127.0.0.1:0".parse().unwrap(), content).unwrap();
        let address = server.address();
        let program = r#"
import sys, urllib.request
from prometheus_client.openmetrics.parser import text_string_to_metric_families
request = urllib.request.Request(sys.argv[1], headers={"Accept": "application/openmetrics-text"})
response = urllib.request.urlopen(request, timeout=5)
assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0"), response.headers
for family in text_string_to_metric_families(response.read().decode()):
    assert family.documentation and family.type in ("gauge", "counter"), family
    for sample in family.samples:
        print(sample.name, sample.labels.get("host"), sample.labels.get("gateway"), sample.value, sep="|")
"#;
        let output = Command::new("/usr/bin/python3")
            .args(["-c", program, &format!("http://{address}/metrics")])
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        for wanted in [
            "clearstream_watch_gateway_used|None|gw1|1.0",
            "clearstream_watch_gateway_used|None|gw2|0.0",
            "clearstream_watch_gateway_session_up|None|gw2|0.0",
            "clearstream_watch_gateway_probes_lost_total|None|gw1|2.0",
            "clearstream_watch_gateway_round_trip_seconds|None|gw1|0.00025",
            "clearstream_watch_gateways_used|None|None|1.0",
            "clearstream_watch_tcp_targets|None|None|2.0",
            "clearstream_watch_held|None|None|1.0",
            "clearstream_watch_large_targets|None|None|1.0",
            "clearstream_watch_gateway_loss_ratio|None|gw1|0.125",
            "clearstream_watch_gateway_buckets|None|gw1|60.0",
        ] {
            assert!(text.lines().any(|line| line == wanted), "{wanted} is not in:\n{text}");
        }
        assert!(text.contains("clearstream_watch_running_seconds|an \"odd\\name\""), "{text}");
        assert!(!text.contains("gateway_session_up|None|gw1"), "unknown values are omitted: {text}");
    }
}
