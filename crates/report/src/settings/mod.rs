//! Requested settings against effective settings. Equal rows are folded
//! into one row per setting; what differs gets a row of its own.

mod by_experiment;

use std::collections::BTreeMap;

use clearstream_schema::flow::{Direction, FlowSummary, SocketSettings};

use crate::format::bytes;
pub(crate) use by_experiment::{ExperimentSettings, table};

/// All settings of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    seen: BTreeMap<Seen, Times>,
    experiment_count: usize,
}

/// Frequency and places of a setting.
#[derive(Debug, Clone, Default)]
struct Times {
    count: usize,
    experiments: Vec<String>,
}

/// One setting as observed in at least one trial.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    setting: &'static str,
    differs: bool,
    requested: String,
    sender: String,
    receiver: String,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct SettingRow {
    pub(crate) setting: String,
    pub(crate) requested: String,
    pub(crate) sender: String,
    pub(crate) receiver: String,
    pub(crate) trial_count: usize,
    pub(crate) experiments: Vec<String>,
    pub(crate) differs: bool,
}

/// Number of levels listed; more are counted.
const LISTED: usize = 4;

impl Settings {
    /// Adds the first flow of a trial: all flows are configured equally but for their cores.
    pub(crate) fn add(&mut self, experiment: &str, summary: &FlowSummary) {
        let (client, server) = (summary.client_settings.flows.first(), summary.server_settings.flows.first());
        let reverse = summary.requested.direction == Direction::Reverse;
        let (sender, receiver) = if reverse { (server, client) } else { (client, server) };
        let (Some(sender), Some(receiver)) = (sender, receiver) else { return };
        for seen in rows_of(summary, sender, receiver) {
            self.seen.entry(seen).or_default().add(1, &[experiment.to_owned()]);
        }
    }

    /// Number of experiments with flow trials: a setting observed in all of them need not list them.
    pub(crate) fn name_all(&mut self, count: usize) {
        self.experiment_count = count;
    }

    /// Rows of the table: first what differs, one row each; then what agrees, one row per setting.
    pub(crate) fn rows(&self) -> Vec<SettingRow> {
        let mut rows: Vec<SettingRow> = Vec::new();
        let mut agreeing: BTreeMap<&'static str, Vec<(&Seen, &Times)>> = BTreeMap::new();
        for (seen, times) in &self.seen {
            if seen.differs {
                rows.push(fold(&[(seen, times)]));
            } else {
                agreeing.entry(seen.setting).or_default().push((seen, times));
            }
        }
        rows.extend(agreeing.values().map(|list| fold(list)));
        for row in &mut rows {
            if row.experiments.len() > 1 && row.experiments.len() == self.experiment_count {
                row.experiments = vec!["all".to_owned()];
            }
        }
        rows
    }
}

impl Times {
    fn add(&mut self, count: usize, experiments: &[String]) {
        self.count += count;
        for name in experiments {
            if !self.experiments.contains(name) {
                self.experiments.push(name.clone());
            }
        }
    }
}

/// Several agreeing values of one setting as one row.
fn fold(list: &[(&Seen, &Times)]) -> SettingRow {
    let mut times = Times::default();
    for (_, one) in list {
        times.add(one.count, &one.experiments);
    }
    let column = |pick: fn(&Seen) -> &String| {
        let mut values: Vec<&str> = list.iter().map(|(seen, _)| pick(seen).as_str()).collect();
        values.sort_unstable();
        values.dedup();
        values.sort_by_key(|text| text.len());
        if values.len() > LISTED { format!("{} values", values.len()) } else { values.join("; ") }
    };
    SettingRow {
        setting: list.first().map_or_else(String::new, |(seen, _)| seen.setting.to_owned()),
        requested: column(|seen| &seen.requested),
        sender: column(|seen| &seen.sender),
        receiver: column(|seen| &seen.receiver),
        trial_count: times.count,
        experiments: times.experiments,
        differs: list.iter().any(|(seen, _)| seen.differs),
    }
}

const NOT_HERE: &str = "\u{2013}";

fn rows_of(summary: &FlowSummary, sender: &SocketSettings, receiver: &SocketSettings) -> Vec<Seen> {
    let config = &summary.requested;
    let same = |setting,
                requested: Option<String>,
                default: &str,
                in_sender: Option<String>,
                in_receiver: Option<String>| {
        let differs = requested.as_ref().is_some_and(|requested| {
            [&in_sender, &in_receiver].into_iter().flatten().any(|effective| effective != requested)
        });
        let text = |value: Option<String>| value.unwrap_or_else(|| NOT_HERE.to_owned());
        Seen {
            setting,
            differs,
            requested: requested.unwrap_or_else(|| default.to_owned()),
            sender: text(in_sender),
            receiver: text(in_receiver),
        }
    };
    let buffer = |setting, requested: Option<u64>, send: bool| {
        let effective = if send { sender.send_buffer_bytes } else { receiver.receive_buffer_bytes };
        // socket(7): "the kernel doubles this value": twice the request agrees with it.
        let differs = requested
            .is_some_and(|requested| effective != requested && effective != requested.saturating_mul(2));
        let shown = match requested {
            Some(requested) if effective == requested.saturating_mul(2) => {
                format!("{} (the kernel doubles)", bytes(effective as f64))
            }
            _ => bytes(effective as f64),
        };
        let (in_sender, in_receiver) =
            if send { (shown, NOT_HERE.to_owned()) } else { (NOT_HERE.to_owned(), shown) };
        Seen {
            setting,
            differs,
            requested: requested.map_or_else(|| "autotuned".to_owned(), |requested| bytes(requested as f64)),
            sender: in_sender,
            receiver: in_receiver,
        }
    };

    let first = |cores: &Option<clearstream_schema::CoreList>| {
        cores.as_ref().and_then(|list| list.0.first()).map(u32::to_string)
    };
    let pinned =
        |core: Option<u32>| Some(core.map_or_else(|| "not pinned".to_owned(), |core| core.to_string()));
    let low_water = config.receive_low_water.map(|bytes| bytes.0);
    vec![
        buffer("send buffer", config.send_buffer.or(config.window).map(|b| b.0), true),
        buffer("receive buffer", config.receive_buffer.or(config.window).map(|b| b.0), false),
        same(
            "congestion control",
            config.congestion_control.clone(),
            "host's default",
            sender.congestion_control.clone(),
            None,
        ),
        same(
            "pacing",
            config.pacing.map(|rate| crate::format::rate(rate.0 as f64)),
            "none",
            Some(
                sender
                    .pacing_rate_bps
                    .map_or_else(|| "none".to_owned(), |bps| crate::format::rate(bps as f64)),
            ),
            None,
        ),
        same(
            "receive low-water mark",
            low_water.map(|n| bytes(n as f64)),
            "kernel's default",
            None,
            Some(bytes(receiver.receive_low_water_bytes as f64)),
        ),
        same("sender CPU", first(&config.sender_cores), "not pinned", pinned(sender.pinned_core), None),
        same("receiver CPU", first(&config.receiver_cores), "not pinned", None, pinned(receiver.pinned_core)),
        same(
            "memory node",
            config.memory_node.map(|node| node.to_string()),
            "the thread's own",
            sender.memory_node.map(|node| node.to_string()),
            receiver.memory_node.map(|node| node.to_string()),
        ),
        same(
            "transfer size",
            Some(bytes(config.transfer().0 as f64)),
            "",
            Some(bytes(sender.transfer_bytes as f64)),
            Some(bytes(receiver.transfer_bytes as f64)),
        ),
        same("send method", Some(spelling(config.method)), "", sender.method.map(spelling), None),
        same("receive method", Some(spelling(config.receive)), "", None, receiver.receive.map(spelling)),
        same(
            "flows",
            Some(config.flows.to_string()),
            "",
            Some(summary.client_settings.flows.len().to_string()),
            Some(summary.server_settings.flows.len().to_string()),
        ),
        same(
            "segment size",
            config.datagram.map(|size| bytes(size.0 as f64)),
            "from the path",
            Some(bytes(sender.segment_bytes as f64)),
            Some(bytes(receiver.segment_bytes as f64)),
        ),
    ]
}

/// Spelling of an option's value in files.
fn spelling(value: impl serde::Serialize) -> String {
    match clearstream_schema::json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::ByteCount;

    use super::*;
    use crate::synthetic::summary;

    fn row<'a>(rows: &'a [SettingRow], name: &str) -> Vec<&'a SettingRow> {
        rows.iter().filter(|row| row.setting == name).collect()
    }

    #[test]
    fn a_doubled_buffer_agrees_with_the_request_and_a_capped_one_differs() {
        let mut settings = Settings::default();
        let mut one = summary(1e9);
        one.requested.window = Some(ByteCount(1 << 20));
        one.client_settings.flows[0].send_buffer_bytes = 2 << 20;
        one.server_settings.flows[0].receive_buffer_bytes = 425_984; // twice net.core.rmem_max = 212992
        settings.add("matrix", &one);
        let rows = settings.rows();
        assert!(!row(&rows, "send buffer")[0].differs);
        assert_eq!(row(&rows, "send buffer")[0].sender, "2 MiB (the kernel doubles)");
        assert!(row(&rows, "receive buffer")[0].differs);
        assert_eq!(row(&rows, "receive buffer")[0].receiver, "416 KiB");
    }

    #[test]
    fn agreeing_cores_fold_into_one_row() {
        let mut settings = Settings::default();
        for core in 0..48 {
            let mut one = summary(1e9);
            one.requested.sender_cores = Some(clearstream_schema::CoreList(vec![core]));
            one.client_settings.flows[0].pinned_core = Some(if core == 5 { 6 } else { core });
            settings.add("matrix", &one);
        }
        let rows = settings.rows();
        let cores = row(&rows, "sender CPU");
        assert_eq!(cores.len(), 2);
        assert!(cores[0].differs && cores[0].requested == "5" && cores[0].sender == "6");
        assert_eq!((cores[1].requested.as_str(), cores[1].trial_count), ("47 values", 47));
    }
}
