//! Disciplines whose options are structures: the fifos (`struct tc_fifo_qopt`)
//! and tbf (`struct tc_tbf_qopt`), of linux/pkt_sched.h.

use std::collections::BTreeMap;

use super::Discipline;

type Values = BTreeMap<&'static str, u64>;

/// `PSCHED_SHIFT` of net/pkt_sched.h: a tick of the scheduler is 64 ns.
const TICK_NS: f64 = 64.0;

const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_PRATE64: u16 = 5;
/// `TC_LINKLAYER_ETHERNET`: without it the kernel requires a rate table.
const LINKLAYER_ETHERNET: u8 = 1;
/// Two `struct tc_ratespec` and three 32-bit fields.
const TBF_BYTES: usize = 36;
/// Default of tc when no `mtu` is given (tc-tbf(8) documents the interface's MTU, tc sends 2047).
const USUAL_MTU_BYTES: u64 = 2047;

/// One attribute: length, kind, value, padding to four bytes (netlink(7)).
pub(super) fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

pub(super) fn limit(values: &Values) -> Option<Vec<u8>> {
    values.get("limit").map(|&limit| low(limit).to_ne_bytes().to_vec())
}

pub(super) fn read_limit(options: &[u8]) -> Values {
    u32_at(options, 0).map(|limit| ("limit", u64::from(limit))).into_iter().collect()
}

/// Validates a tbf, and derives its limit from a latency: the bytes that arrive at the rate in that time,
/// plus the burst (tc-tbf(8)).
pub(super) fn complete_tbf(values: &mut Values) -> Result<(), String> {
    let rate = values.get("rate").copied().filter(|&rate| rate > 0).ok_or("tbf needs a rate")?;
    let burst = values.get("burst").copied().filter(|&burst| burst > 0).ok_or("tbf needs a burst")?;
    if let Some(latency_us) = values.remove("latency") {
        let queued = u128::from(rate) * u128::from(latency_us) / 1_000_000 + u128::from(burst);
        values.insert("limit", u64::try_from(queued).unwrap_or(u64::MAX));
    }
    if !values.contains_key("limit") {
        return Err("tbf needs a limit or a latency".to_owned());
    }
    Ok(())
}

/// Tolerated difference between a live and a requested number: the kernel stores a burst as its transmission
/// time at the rate, and tc rounds that time to whole microseconds before.
pub(super) fn slack(wanted: &Discipline, keyword: &str) -> u64 {
    let rate = match keyword {
        "burst" => wanted.values.get("rate"),
        "mtu" => wanted.values.get("peakrate"),
        _ => None,
    };
    rate.map_or(0, |&rate| rate / 1_000_000 + bytes(1, rate) + 1)
}

/// Ticks to transmit `size` bytes at a rate in bytes per second.
fn ticks(size: u64, rate: u64) -> u32 {
    let ticks = size as f64 * 1e9 / rate.max(1) as f64 / TICK_NS;
    ticks.round() as u32
}

fn bytes(ticks: u32, rate: u64) -> u64 {
    (f64::from(ticks) * TICK_NS * rate as f64 / 1e9).round() as u64
}

pub(super) fn tbf(values: &Values) -> Vec<u8> {
    let value = |name: &str| values.get(name).copied().unwrap_or(0);
    let (rate, peak) = (value("rate"), value("peakrate"));
    let mut structure = Vec::with_capacity(TBF_BYTES);
    for rate in [rate, peak] {
        structure.extend_from_slice(&[0, if rate == 0 { 0 } else { LINKLAYER_ETHERNET }, 0, 0, 0, 0, 0, 0]);
        structure.extend_from_slice(&low(rate).to_ne_bytes());
    }
    let mtu = values.get("mtu").copied().unwrap_or(USUAL_MTU_BYTES);
    let mtu = if peak == 0 { 0 } else { ticks(mtu, peak) };
    for field in [low(value("limit")), ticks(value("burst"), rate), mtu] {
        structure.extend_from_slice(&field.to_ne_bytes());
    }
    let mut out = Vec::new();
    attribute(&mut out, TCA_TBF_PARMS, &structure);
    for (kind, rate) in [(TCA_TBF_RATE64, rate), (TCA_TBF_PRATE64, peak)] {
        if rate >= u64::from(u32::MAX) {
            attribute(&mut out, kind, &rate.to_ne_bytes());
        }
    }
    out
}

pub(super) fn read_tbf(options: &[u8]) -> Values {
    let mut values = Values::new();
    let (mut rate, mut peak) = (None, None);
    let mut structure: &[u8] = &[];
    for (kind, value) in crate::ethtool::attributes(options) {
        let long = || value.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        match kind {
            TCA_TBF_PARMS => structure = value,
            TCA_TBF_RATE64 => rate = long(),
            TCA_TBF_PRATE64 => peak = long(),
            _ => {}
        }
    }
    let at = |offset: usize| u32_at(structure, offset).map(u64::from);
    let (rate, peak) = (rate.or_else(|| at(8)).unwrap_or(0), peak.or_else(|| at(20)).unwrap_or(0));
    values.insert("rate", rate);
    values.insert("limit", at(24).unwrap_or(0));
    values.insert("burst", bytes(u32_at(structure, 28).unwrap_or(0), rate));
    if peak > 0 {
        values.insert("peakrate", peak);
        values.insert("mtu", bytes(u32_at(structure, 32).unwrap_or(0), peak));
    }
    values
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn low(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
