//! Settings asked for beside the settings in force. What agrees is folded
//! into one row per setting; what differs gets a row of its own.

use std::collections::BTreeMap;

use clearstream_schema::flow::{Direction, FlowSummary, SocketSettings};

use crate::format::bytes;

/// All settings of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    seen: BTreeMap<Seen, Times>,
    experiment_count: usize,
}

/// How often and where a setting was seen.
#[derive(Debug, Clone, Default)]
struct Times {
    count: usize,
    experiments: Vec<String>,
}

/// One setting as seen in at least one trial.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    setting: &'static str,
    differs: bool,
    asked: String,
    sender: String,
    receiver: String,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct SettingRow {
    pub(crate) setting: String,
    pub(crate) asked: String,
    pub(crate) sender: String,
    pub(crate) receiver: String,
    pub(crate) trial_count: usize,
    pub(crate) experiments: Vec<String>,
    pub(crate) differs: bool,
}

/// So many levels are listed; more are counted.
const LISTED: usize = 4;

impl Settings {
    /// Takes in the first flow of a trial: all flows are made alike but for their cores.
    pub(crate) fn add(&mut self, experiment: &str, summary: &FlowSummary) {
        let (client, server) = (summary.client_settings.flows.first(), summary.server_settings.flows.first());
        let reverse = summary.requested.direction == Direction::Reverse;
        let (sender, receiver) = if reverse { (server, client) } else { (client, server) };
        let (Some(sender), Some(receiver)) = (sender, receiver) else { return };
        for seen in rows_of(summary, sender, receiver) {
            self.seen.entry(seen).or_default().add(1, &[experiment.to_owned()]);
        }
    }

    /// How many experiments have flow trials: a setting seen in all of them need not list them.
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
        asked: column(|seen| &seen.asked),
        sender: column(|seen| &seen.sender),
        receiver: column(|seen| &seen.receiver),
        trial_count: times.count,
        experiments: times.experiments,
        differs: list.iter().any(|(seen, _)| seen.differs),
    }
}

const NOT_HERE: &str = "\u{2013}";

fn rows_of(summary: &FlowSummary, sender: &SocketSettings, receiver: &SocketSettings) -> Vec<Seen> {
    let asked = &summary.requested;
    let same = |setting,
                asked: Option<String>,
                default: &str,
                in_sender: Option<String>,
                in_receiver: Option<String>| {
        let differs = asked.as_ref().is_some_and(|asked| {
            [&in_sender, &in_receiver].into_iter().flatten().any(|in_force| in_force != asked)
        });
        let text = |value: Option<String>| value.unwrap_or_else(|| NOT_HERE.to_owned());
        Seen {
            setting,
            differs,
            asked: asked.unwrap_or_else(|| default.to_owned()),
            sender: text(in_sender),
            receiver: text(in_receiver),
        }
    };
    let buffer = |setting, asked: Option<u64>, send: bool| {
        let in_force = if send { sender.send_buffer_bytes } else { receiver.receive_buffer_bytes };
        // socket(7): "the kernel doubles this value", so twice the request is what was asked for.
        let differs = asked.is_some_and(|asked| in_force != asked && in_force != asked.saturating_mul(2));
        let shown = match asked {
            Some(asked) if in_force == asked.saturating_mul(2) => {
                format!("{} (the kernel doubles)", bytes(in_force as f64))
            }
            _ => bytes(in_force as f64),
        };
        let (in_sender, in_receiver) =
            if send { (shown, NOT_HERE.to_owned()) } else { (NOT_HERE.to_owned(), shown) };
        Seen {
            setting,
            differs,
            asked: asked.map_or_else(|| "autotuned".to_owned(), |asked| bytes(asked as f64)),
            sender: in_sender,
            receiver: in_receiver,
        }
    };

    let first = |cores: &Option<clearstream_schema::CoreList>| {
        cores.as_ref().and_then(|list| list.0.first()).map(u32::to_string)
    };
    let pinned =
        |core: Option<u32>| Some(core.map_or_else(|| "not pinned".to_owned(), |core| core.to_string()));
    let low_water = asked.receive_low_water.map(|bytes| bytes.0);
    vec![
        buffer("send buffer", asked.send_buffer.or(asked.window).map(|b| b.0), true),
        buffer("receive buffer", asked.receive_buffer.or(asked.window).map(|b| b.0), false),
        same(
            "congestion control",
            asked.congestion_control.clone(),
            "host's default",
            sender.congestion_control.clone(),
            None,
        ),
        same(
            "pacing",
            asked.pacing.map(|rate| crate::format::rate(rate.0 as f64)),
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
        same("sender CPU", first(&asked.sender_cores), "not pinned", pinned(sender.pinned_core), None),
        same("receiver CPU", first(&asked.receiver_cores), "not pinned", None, pinned(receiver.pinned_core)),
        same(
            "memory node",
            asked.memory_node.map(|node| node.to_string()),
            "the thread's own",
            sender.memory_node.map(|node| node.to_string()),
            receiver.memory_node.map(|node| node.to_string()),
        ),
        same(
            "transfer size",
            Some(bytes(asked.transfer.0 as f64)),
            "",
            Some(bytes(sender.transfer_bytes as f64)),
            Some(bytes(receiver.transfer_bytes as f64)),
        ),
        same("send method", Some(word(asked.method)), "", sender.method.map(word), None),
        same("receive method", Some(word(asked.receive)), "", None, receiver.receive.map(word)),
        same(
            "flows",
            Some(asked.flows.to_string()),
            "",
            Some(summary.client_settings.flows.len().to_string()),
            Some(summary.server_settings.flows.len().to_string()),
        ),
        same(
            "segment size",
            asked.datagram.map(|size| bytes(size.0 as f64)),
            "from the path",
            Some(bytes(sender.segment_bytes as f64)),
            Some(bytes(receiver.segment_bytes as f64)),
        ),
    ]
}

/// Spelling of an option's value as it stands in files.
fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
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
    fn a_doubled_buffer_is_as_asked_and_a_capped_one_differs() {
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
        assert!(cores[0].differs && cores[0].asked == "5" && cores[0].sender == "6");
        assert_eq!((cores[1].asked.as_str(), cores[1].trial_count), ("47 values", 47));
    }
}
