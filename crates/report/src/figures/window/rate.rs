//! The rate that bounds the model of a window curve: that of the lab's link, else
//! of the slower interface on the path, else the highest goodput measured.

use std::collections::BTreeMap;

use clearstream_record::Reader;
use clearstream_schema::{
    flow::{Interval, SideInterval},
    host::{HostReport, Nic},
};

use crate::{
    ReportError,
    digest::{Digest, ExperimentDigest},
    format::rate,
    link, series,
};

/// A rate and where it comes from.
#[derive(Debug, Clone)]
pub(crate) struct PathRate {
    pub(crate) bps: f64,
    /// As text.
    pub(super) source: String,
    /// The highest goodput measured, so that the curve always reaches it.
    pub(super) measured: bool,
}

impl PathRate {
    pub(super) fn of(digest: &Digest, experiment: &ExperimentDigest, highest_bps: f64) -> Self {
        let lab = lab_rate_bps(digest, experiment).map(|bps| Self {
            bps,
            source: "the lab link's rate".to_owned(),
            measured: false,
        });
        lab.or_else(|| Self::of_interfaces(digest, experiment)).unwrap_or_else(|| Self {
            bps: highest_bps,
            source: "the highest goodput measured".to_owned(),
            measured: true,
        })
    }

    /// Goodput that the slower of both interfaces can carry; `None` unless the line rates
    /// of both are known.
    fn of_interfaces(digest: &Digest, experiment: &ExperimentDigest) -> Option<Self> {
        if digest.run.lab.is_some() || digest.one_machine() {
            return None;
        }
        let [client, server] = &experiment.path_interfaces;
        let nics = [nic(digest.client(), client.as_deref())?, nic(digest.server(), server.as_deref())?];
        let [one, other] = nics.map(|nic| Some((nic.goodput_max_bps()?, nic)));
        let (bps, slower) = [one?, other?].into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let source = format!(
            "what the slower interface of both hosts carries of payload ({}: {} at MTU {})",
            slower.name,
            rate(slower.line_rate_bps()? as f64),
            slower.mtu_bytes.map_or_else(|| "1500 (assumed)".to_owned(), |mtu| mtu.to_string()),
        );
        Some(Self { bps, source, measured: false })
    }
}

/// Rate of the lab link that was measured over, else the lowest of the lab's links.
fn lab_rate_bps(digest: &Digest, experiment: &ExperimentDigest) -> Option<f64> {
    let lab = digest.run.lab.as_ref()?;
    if let Some(link) = link::of(lab, experiment).filter(|_| experiment.server_address.is_some()) {
        return link.rate.map(|rate| rate.0 as f64);
    }
    lab.links.iter().filter_map(|link| link.rate).map(|rate| rate.0 as f64).min_by(f64::total_cmp)
}

/// The interface that carried the data; without samples the only card that is up.
fn nic<'a>(host: &'a HostReport, carried: Option<&str>) -> Option<&'a Nic> {
    if let Some(name) = carried {
        return host.nics.iter().find(|nic| nic.name == name);
    }
    let up = |nic: &&Nic| nic.pci_address.is_some() && nic.operational_state.as_deref() == Some("up");
    let mut cards = host.nics.iter().filter(up);
    cards.next().filter(|_| cards.next().is_none())
}

/// Names of the interfaces that carried most bytes in the first trial that has samples,
/// the client's and the server's.
///
/// # Errors
/// The samples cannot be read.
pub(crate) fn path_interfaces(
    experiment: &ExperimentDigest,
    reader: &Reader,
) -> Result<[Option<String>; 2], ReportError> {
    let Some(trial) = experiment.trials().find(|trial| trial.samples.is_some()) else {
        return Ok([None, None]);
    };
    let mut carried: [BTreeMap<String, u64>; 2] = Default::default();
    for interval in reader.samples::<Interval>(&series::stub(trial))? {
        let interval = interval?;
        add(&mut carried[0], &interval.client);
        add(&mut carried[1], &interval.server);
    }
    Ok(carried.map(|bytes| {
        let most = bytes.into_iter().filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes);
        most.map(|(name, _)| name)
    }))
}

fn add(sums: &mut BTreeMap<String, u64>, side: &SideInterval) {
    for interface in &side.interfaces {
        let sum = sums.entry(interface.name.clone()).or_default();
        *sum = sum.saturating_add(interface.send_bytes.saturating_add(interface.receive_bytes));
    }
}
