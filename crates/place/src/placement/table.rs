//! The indirection table of a placement. One that was set by hand stays unchanged
//! when channels are added, and the kernel refuses fewer channels than it
//! names (net/ethtool/channels.c, "requested channel counts are too low for
//! existing indirection table settings").

use clearstream_schema::{
    CoreList,
    host::Nic,
    indirection::{Indirection, entry_counts, is_even},
    plan::{Effect, Setting, Step, Value},
};

/// A step for the table, and whether the channels have to be changed first.
#[derive(Debug)]
pub(super) struct TableStep {
    pub(super) step: Step,
    pub(super) after_channels: bool,
}

/// Change of the table when the receive channels become `desired` out of
/// `now`; `None` where it is right, or nothing is known of it.
pub(super) fn table_step(nic: &Nic, now: u32, desired: u32) -> Option<TableStep> {
    let rss = nic.rss.as_ref()?;
    let table = &rss.indirection;
    let highest = *table.iter().max()?;
    let after_channels = desired > now;
    // Some devices hash to fewer queues than they have channels.
    let most = rss.queue_count.filter(|_| !after_channels).unwrap_or(desired);
    let wanted = desired.min(most).max(1);
    let text = Indirection::of(table).to_string();
    let reason = if after_channels {
        // A table that is spread over all queues is the driver's own, as far
        // as visible: the driver distributes it over the new queues as well.
        if is_even(table, now.min(rss.queue_count.unwrap_or(now))) {
            return None;
        }
        format!("{}: the driver leaves it as it is when queues are added", shares(table))
    } else if highest >= desired {
        format!(
            "the table leads to queue {highest} ({text}): the kernel refuses fewer channels than a table names that \
             somebody set"
        )
    } else if is_even(table, wanted) {
        return None;
    } else {
        shares(table)
    };
    let step = Step {
        setting: Setting::Ethtool {
            interface: nic.name.clone(),
            group: "rss".to_owned(),
            name: "indirection".to_owned(),
        },
        current: Some(Value::Text(text)),
        desired: Some(Value::Text(Indirection::Equal(wanted).to_string())),
        reason,
        effect: Effect::Now,
    };
    Some(TableStep { step, after_channels })
}

/// Part of the hashes that each queue gets.
fn shares(table: &[u32]) -> String {
    const SHOWN: usize = 8;
    let counts = entry_counts(table);
    let parts: Vec<String> = counts
        .iter()
        .take(SHOWN)
        .map(|(queue, count)| format!("queue {queue} {:.0} %", *count as f64 * 100.0 / table.len() as f64))
        .collect();
    let more = if counts.len() > SHOWN { ", ..." } else { "" };
    let left_out: Vec<u32> = (0..counts.keys().max().map_or(0, |most| most + 1))
        .filter(|queue| !counts.contains_key(queue))
        .collect();
    let none = match left_out.is_empty() {
        true => String::new(),
        false => format!(", nothing to queue {}", CoreList(left_out)),
    };
    format!("the table is uneven ({}{more}{none})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use clearstream_schema::host::Rss;

    use super::*;

    fn nic(table: &str, size: usize, queue_count: u32) -> Nic {
        let indirection = table.parse::<Indirection>().unwrap().entries(size).unwrap();
        let rss = Rss { indirection, queue_count: Some(queue_count), ..Rss::default() };
        Nic { name: "eth1".to_owned(), rss: Some(rss), ..Nic::default() }
    }

    fn planned(nic: &Nic, now: u32, desired: u32) -> Option<(String, bool)> {
        table_step(nic, now, desired)
            .map(|found| (found.step.desired.unwrap().to_string(), found.after_channels))
    }

    #[test]
    fn a_table_that_names_more_queues_is_narrowed_before_the_channels_are() {
        for (table, size) in [("equal 8", 128), ("0*64,7*64", 128), ("equal 8", 72)] {
            let found = planned(&nic(table, size, 8), 8, 4);
            assert_eq!(found, Some(("equal 4".to_owned(), false)), "{table}");
        }
        // As virtio leaves its table when channels are removed: queues 2 and 3 are gone.
        assert_eq!(planned(&nic("equal 4", 128, 2), 2, 2), Some(("equal 2".to_owned(), false)));
    }

    #[test]
    fn an_uneven_table_is_spread_and_an_even_one_is_left_alone() {
        assert_eq!(planned(&nic("equal 2", 128, 8), 8, 4), Some(("equal 4".to_owned(), false)));
        assert_eq!(planned(&nic("0*54,1*37,2*18,3*19", 128, 4), 4, 4), Some(("equal 4".to_owned(), false)));
        assert_eq!(planned(&nic("equal 4", 128, 4), 4, 4), None);
        assert_eq!(planned(&nic("0*22,1*21,2*21,3*21,4*22,5*21", 128, 6), 6, 6), None, "igb's own blocks");
        assert_eq!(planned(&nic("equal 3", 100, 3), 3, 3), None, "100 entries over 3 queues");
        assert_eq!(planned(&nic("equal 16", 128, 16), 32, 32), None, "a device that hashes to 16 queues");
    }

    #[test]
    fn more_channels_come_before_a_table_that_somebody_set() {
        assert_eq!(planned(&nic("equal 4", 128, 4), 4, 8), None, "the driver's own");
        assert_eq!(planned(&nic("equal 2", 128, 4), 4, 8), Some(("equal 8".to_owned(), true)));
        let reason = table_step(&nic("0*96,2*32", 128, 4), 4, 8).unwrap().step.reason;
        assert!(reason.contains("queue 0 75 %, queue 2 25 %, nothing to queue 1"), "{reason}");
    }
}
