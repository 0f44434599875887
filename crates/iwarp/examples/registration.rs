//! Cost of memory registration, from 1 KiB to 1 GiB, and of a lookup by STag: a
//! table, or JSON with `--json`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{hint::black_box, time::Instant};

use clearstream_iwarp::{
    memory::{Access, Buffer, MemoryError, MemoryTable, Region},
    stag::{DomainId, QueuePairId},
    work::Segment,
};

const PAGE_BYTES: usize = 4096;
const ROUNDS: usize = 9;
const LOOKUPS: u32 = 100_000;
const RIGHTS: Access = Access::REMOTE_READ;

/// Medians of one size. Pinned figures are absent when pinning failed.
struct Row {
    bytes: usize,
    register_ns: f64,
    deregister_ns: f64,
    /// Memory that was never touched: the kernel allocates and clears its
    /// pages.
    pinned_fresh_ns: Option<f64>,
    /// Memory that is in use.
    pinned_ns: Option<f64>,
}

fn main() -> Result<(), MemoryError> {
    let table = MemoryTable::new();
    let domain = table.allocate_domain();
    let mut rows = Vec::new();
    let mut notice = None;
    for bits in (10..=30).step_by(2) {
        rows.push(row(&table, domain, 1 << bits, &mut notice)?);
    }
    let lookups = lookups(&table, domain)?;
    if std::env::args().any(|argument| argument == "--json") {
        print_json(&rows, &lookups, notice.as_deref());
    } else {
        print_table(&rows, &lookups, notice.as_deref());
    }
    Ok(())
}

fn row(
    table: &MemoryTable,
    domain: DomainId,
    bytes: usize,
    notice: &mut Option<String>,
) -> Result<Row, MemoryError> {
    let region = Region::new(bytes)?;
    let repeat = |pin: bool, region: &Region| -> Result<(f64, f64), MemoryError> {
        let begin = Instant::now();
        let memory = if pin { region.memory().pin()? } else { region.memory() };
        let stag = table.register(domain, memory, RIGHTS, 0)?;
        let registered = Instant::now();
        table.deregister(stag)?;
        Ok((nanoseconds(begin, registered), nanoseconds(registered, Instant::now())))
    };
    let mut plain = Vec::new();
    for _ in 0..ROUNDS * 100 {
        plain.push(repeat(false, &region)?);
    }
    let register_ns = median(plain.iter().map(|pair| pair.0));
    let deregister_ns = median(plain.iter().map(|pair| pair.1));
    let mut pinned = |fresh: bool| -> Option<f64> {
        let mut times = Vec::new();
        for _ in 0..if bytes > 1 << 26 { 3 } else { ROUNDS } {
            let other;
            let used = if fresh {
                other = Region::new(bytes).ok()?;
                &other
            } else {
                for at in (0..bytes).step_by(PAGE_BYTES) {
                    region.write(at, &[1]);
                }
                &region
            };
            match repeat(true, used) {
                Ok(pair) => times.push(pair.0),
                Err(error) => {
                    notice.get_or_insert_with(|| error.to_string());
                    return None;
                }
            }
        }
        Some(median(times.into_iter()))
    };
    let (pinned_fresh_ns, pinned_ns) = (pinned(true), pinned(false));
    Ok(Row { bytes, register_ns, deregister_ns, pinned_fresh_ns, pinned_ns })
}

/// Nanoseconds of each kind of lookup.
fn lookups(
    table: &std::sync::Arc<MemoryTable>,
    domain: DomainId,
) -> Result<Vec<(&'static str, f64)>, MemoryError> {
    let region = Region::new(1 << 20)?;
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let stag = table.register(domain, region.memory(), rights, 7)?;
    let local = Segment { stag, address: region.address() + 64, length: 64 };
    let loan = Buffer::new(table, domain, 4096)?.lend();
    let lent = loan.segment();
    let pair = QueuePairId(1);
    Ok(vec![
        ("local region", each(|| table.local(domain, local, true))),
        ("lent buffer", each(|| table.local(domain, lent, true))),
        ("by a peer", each(|| table.remote(domain, pair, stag, local.address, 64, Access::REMOTE_WRITE))),
    ])
}

fn each<T>(mut act: impl FnMut() -> T) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        for _ in 0..LOOKUPS {
            black_box(act());
        }
        nanoseconds(begin, Instant::now()) / f64::from(LOOKUPS)
    });
    median(times)
}

fn nanoseconds(begin: Instant, end: Instant) -> f64 {
    end.duration_since(begin).as_secs_f64() * 1e9
}

fn median(times: impl Iterator<Item = f64>) -> f64 {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn print_table(rows: &[Row], lookups: &[(&str, f64)], notice: Option<&str>) {
    println!("     size   register  deregister   pinned (new)   per page   pinned (in use)   per page");
    for row in rows {
        let pages = row.bytes.div_ceil(PAGE_BYTES) as f64;
        let micro = |ns: Option<f64>| ns.map_or("-".into(), |ns| format!("{:.2} us", ns / 1e3));
        let each = |ns: Option<f64>| ns.map_or("-".into(), |ns| format!("{:.0} ns", ns / pages));
        println!(
            "{:>9} {:>10} {:>11} {:>14} {:>10} {:>17} {:>10}",
            size(row.bytes),
            micro(Some(row.register_ns)),
            micro(Some(row.deregister_ns)),
            micro(row.pinned_fresh_ns),
            each(row.pinned_fresh_ns),
            micro(row.pinned_ns),
            each(row.pinned_ns),
        );
    }
    for (name, ns) in lookups {
        println!("lookup, {name}: {ns:.1} ns");
    }
    if let Some(notice) = notice {
        println!("pinning: {notice}");
    }
}

fn print_json(rows: &[Row], lookups: &[(&str, f64)], notice: Option<&str>) {
    let row = |row: &Row| {
        let mut text = format!(
            r#"{{"bytes":{},"register_ns":{:.0},"deregister_ns":{:.0}"#,
            row.bytes, row.register_ns, row.deregister_ns
        );
        for (key, value) in [("pinned_fresh_ns", row.pinned_fresh_ns), ("pinned_ns", row.pinned_ns)] {
            if let Some(value) = value {
                text += &format!(r#","{key}":{value:.0}"#);
            }
        }
        text + "}"
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let lookups: Vec<_> =
        lookups.iter().map(|(name, ns)| format!(r#"{{"of":"{name}","ns":{ns:.1}}}"#)).collect();
    let notices: Vec<_> = notice.into_iter().map(|notice| format!("{notice:?}")).collect();
    println!(
        r#"{{"registrations":[{}],"lookups":[{}],"notices":[{}]}}"#,
        rows.join(","),
        lookups.join(","),
        notices.join(",")
    );
}

fn size(bytes: usize) -> String {
    match bytes {
        0x4000_0000.. => format!("{} GiB", bytes >> 30),
        0x10_0000.. => format!("{} MiB", bytes >> 20),
        _ => format!("{} KiB", bytes >> 10),
    }
}
