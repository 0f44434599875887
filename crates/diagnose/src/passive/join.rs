//! Connections between two hosts, each of which samples its own end.

use std::{cmp::Reverse, collections::BTreeSet, net::SocketAddr};

use super::{ConnectionFilter, Observed, SocketSeries, facts::Facts};

/// Local and remote address of ends on one host.
pub type Ends = Vec<(SocketAddr, SocketAddr)>;

/// Samples of an agent's reply, all ends together: below the limit of a message, 1 MiB of JSON.
const SAMPLES_MAX: usize = 256;

/// The busiest connections of two hosts by the ends that match a filter on either: the ends on the one, those on the
/// other, and how many there are in all.
pub fn busiest_ends(one: &Observed, other: &Observed, count: usize) -> (Ends, Ends, usize) {
    let of = |observed: &Observed, swap: bool| {
        let ends = observed.series.iter().filter_map(Facts::of);
        let ends = ends.map(|end| {
            let (local, remote) = (end.last().local, end.last().remote);
            let queued = u64::from(end.last().send_queue_bytes) + u64::from(end.last().receive_queue_bytes);
            let rate = (end.out_bps() + end.in_bps()) as u64;
            (if swap { (remote, local) } else { (local, remote) }, (rate, queued))
        });
        ends.collect::<Vec<_>>()
    };
    let mut all = of(one, false);
    all.extend(of(other, true));
    all.sort_by_key(|(_, busy)| Reverse(*busy));
    let mut seen = BTreeSet::new();
    all.retain(|(ends, _)| seen.insert(*ends));
    let first: Ends = all.iter().take(count).map(|(ends, _)| *ends).collect();
    let second = first.iter().map(|(local, remote)| (*remote, *local)).collect();
    (first, second, all.len())
}

/// What two hosts observed at the same time, under their names. A socket that both have, because they are one, is there
/// once.
pub fn joined(one: Observed, one_name: &str, other: Observed, other_name: &str) -> Observed {
    let socket = |series: &SocketSeries| {
        let sample = series.samples.last()?;
        Some((sample.socket.cookie, sample.socket.inode, sample.socket.local, sample.socket.remote))
    };
    let known: BTreeSet<_> = one.series.iter().filter_map(socket).collect();
    let named = |series: SocketSeries, name: &str| SocketSeries { host: Some(name.to_owned()), ..series };
    let mut series: Vec<SocketSeries> =
        one.series.into_iter().map(|series| named(series, one_name)).collect();
    let others =
        other.series.into_iter().filter(|series| socket(series).is_none_or(|one| !known.contains(&one)));
    series.extend(others.map(|series| named(series, other_name)));
    Observed {
        duration_ns: one.duration_ns.min(other.duration_ns),
        sample_count: one.sample_count.min(other.sample_count),
        interval_ns: one.interval_ns.max(other.interval_ns),
        longest_sample_ns: one.longest_sample_ns.max(other.longest_sample_ns),
        left_out_count: one.left_out_count + other.left_out_count,
        notices: one.notices.into_iter().chain(other.notices).collect(),
        series,
    }
}

impl Observed {
    /// Leaves out sockets that are none of these ends, or without ends those that do not match; and samples in between
    /// where there are too many for a message.
    pub(super) fn reduce(&mut self, filter: &ConnectionFilter, ends: &Ends) {
        let before = self.series.len();
        self.series.retain(|series| {
            series.samples.last().is_some_and(|sample| {
                let (local, remote) = (sample.socket.local, sample.socket.remote);
                match ends.is_empty() {
                    true => filter.matches(local, remote, &series.owners),
                    false => ends.contains(&(local, remote)),
                }
            })
        });
        // The busiest of those that match.
        let busy = |series: &SocketSeries| {
            Facts::of(series).map_or(0, |facts| (facts.out_bps() + facts.in_bps()) as u64)
        };
        self.series.sort_by_key(|series| Reverse(busy(series)));
        self.series.truncate(SAMPLES_MAX / 3);
        self.left_out_count += (before - self.series.len()) as u64;
        let each = (SAMPLES_MAX / self.series.len().max(1)).max(3);
        for series in &mut self.series {
            series.thin(each);
        }
    }
}

impl SocketSeries {
    /// At most so many samples, evenly, with the first and the last.
    fn thin(&mut self, most: usize) {
        let count = self.samples.len();
        if count <= most {
            return;
        }
        let mut place = 0;
        let mut kept = 0;
        self.samples.retain(|_| {
            let keeps = place == kept * (count - 1) / (most - 1);
            kept += usize::from(keeps);
            place += 1;
            keeps
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::passive::tests::{sender, series};

    /// Numbers of twenty digits wherever a number can be.
    fn enlarge(value: &mut Value) {
        match value {
            Value::Object(fields) => fields.values_mut().for_each(enlarge),
            Value::Number(_) | Value::Null => *value = u64::MAX.into(),
            _ => {}
        }
    }

    #[test]
    fn the_largest_reply_fits_into_a_message() {
        let mut sample =
            clearstream_schema::json::to_value(&series(&sender(), |_, _| ()).samples[0]).unwrap();
        enlarge(&mut sample);
        let sample = sample.to_string().len();
        assert!(sample > 1000 && sample * SAMPLES_MAX < 1 << 20, "{sample} bytes for each sample");
    }

    #[test]
    fn samples_in_between_are_left_out_evenly() {
        let moving = series(&sender(), |socket, at| socket.tcp.acked_bytes = Some(at));
        let mut observed = Observed { series: vec![moving; 20], ..Observed::default() };
        observed.reduce(&ConnectionFilter::all(), &Vec::new());
        let one = &observed.series[0].samples;
        assert_eq!((observed.series.len(), one.len(), observed.left_out_count), (20, 12, 0));
        assert_eq!((one[0].at_ns, one[11].at_ns), (0, Duration::from_millis(137 * 21).as_nanos() as u64));
        let steps: BTreeSet<u64> =
            one.windows(2).map(|pair| (pair[1].at_ns - pair[0].at_ns) / 137_000_000).collect();
        assert_eq!(steps, BTreeSet::from([1, 2]));
        observed.reduce(
            &ConnectionFilter::all(),
            &vec![("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap())],
        );
        assert_eq!((observed.series.len(), observed.left_out_count), (0, 20));
    }
}
