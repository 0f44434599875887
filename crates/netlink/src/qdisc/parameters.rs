//! Parameters of disciplines whose options are attributes: fq and fq_codel
//! (linux/pkt_sched.h, `TCA_FQ_*` and `TCA_FQ_CODEL_*`).

use std::collections::BTreeMap;

use super::measure::Measure;

/// One parameter.
#[derive(Debug)]
pub(super) struct Parameter {
    /// Keyword of tc; for a switch, the keyword that enables it.
    pub(super) keyword: &'static str,
    /// For a switch, the keyword that disables it.
    pub(super) off: Option<&'static str>,
    pub(super) measure: Measure,
    attribute: u16,
    form: Encoding,
}

/// Encoding of the number in the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    U32,
    Byte,
    /// The exponent of a power of two.
    Exponent,
    /// All ones means "none", which is not shown.
    OrNone,
}

const fn parameter(keyword: &'static str, attribute: u16, measure: Measure) -> Parameter {
    Parameter { keyword, off: None, measure, attribute, form: Encoding::U32 }
}

const fn formed(keyword: &'static str, attribute: u16, measure: Measure, form: Encoding) -> Parameter {
    Parameter { keyword, off: None, measure, attribute, form }
}

const fn switch(on: &'static str, off: &'static str, attribute: u16, form: Encoding) -> Parameter {
    Parameter { keyword: on, off: Some(off), measure: Measure::Count, attribute, form }
}

const FQ: &[Parameter] = &[
    parameter("limit", 1, Measure::Packets),
    parameter("flow_limit", 2, Measure::Packets),
    formed("buckets", 8, Measure::Count, Encoding::Exponent),
    parameter("orphan_mask", 10, Measure::Count),
    parameter("quantum", 3, Measure::Bytes),
    parameter("initial_quantum", 4, Measure::Bytes),
    parameter("low_rate_threshold", 11, Measure::Rate),
    formed("maxrate", 7, Measure::Rate, Encoding::OrNone),
    parameter("refill_delay", 9, Measure::Microseconds),
    formed("ce_threshold", 12, Measure::Microseconds, Encoding::OrNone),
    parameter("timer_slack", 13, Measure::Nanoseconds),
    parameter("horizon", 14, Measure::Microseconds),
    switch("horizon_drop", "horizon_cap", 15, Encoding::Byte),
    switch("pacing", "nopacing", 5, Encoding::U32),
];

const FQ_CODEL: &[Parameter] = &[
    parameter("limit", 2, Measure::Packets),
    parameter("flows", 5, Measure::Count),
    parameter("quantum", 6, Measure::Count),
    parameter("target", 1, Measure::Microseconds),
    formed("ce_threshold", 7, Measure::Microseconds, Encoding::OrNone),
    parameter("interval", 3, Measure::Microseconds),
    parameter("memory_limit", 9, Measure::Bytes),
    switch("ecn", "noecn", 4, Encoding::U32),
    parameter("drop_batch", 8, Measure::Count),
];

const PFIFO: &[Parameter] = &[parameter("limit", 0, Measure::Packets)];
const BFIFO: &[Parameter] = &[parameter("limit", 0, Measure::Bytes)];
const TBF: &[Parameter] = &[
    parameter("rate", 0, Measure::Rate),
    parameter("burst", 0, Measure::Bytes),
    parameter("limit", 0, Measure::Bytes),
    parameter("latency", 0, Measure::Microseconds),
    parameter("peakrate", 0, Measure::Rate),
    parameter("mtu", 0, Measure::Bytes),
];

pub(super) fn of(kind: &str) -> &'static [Parameter] {
    match kind {
        "fq" => FQ,
        "fq_codel" => FQ_CODEL,
        "pfifo" => PFIFO,
        "bfifo" => BFIFO,
        "tbf" => TBF,
        _ => &[],
    }
}

/// Encodes attributes, in the order of the table.
pub(super) fn encode(known: &[Parameter], values: &BTreeMap<&'static str, u64>) -> Vec<u8> {
    let mut out = Vec::new();
    for parameter in known {
        let Some(&value) = values.get(parameter.keyword) else { continue };
        // A rate above 32 bits of bytes per second is no limit for these kinds.
        let number = u32::try_from(value).unwrap_or(u32::MAX);
        match parameter.form {
            Encoding::U32 | Encoding::OrNone => {
                super::fixed::attribute(&mut out, parameter.attribute, &number.to_ne_bytes())
            }
            Encoding::Byte => {
                super::fixed::attribute(&mut out, parameter.attribute, &[u8::from(number != 0)])
            }
            Encoding::Exponent => {
                let exponent = number.max(1).ilog2();
                super::fixed::attribute(&mut out, parameter.attribute, &exponent.to_ne_bytes());
            }
        }
    }
    out
}

pub(super) fn decode(known: &[Parameter], options: &[u8]) -> BTreeMap<&'static str, u64> {
    let mut values = BTreeMap::new();
    for (attribute, bytes) in crate::ethtool::attributes(options) {
        let found = known.iter().find(|parameter| parameter.attribute == attribute);
        let (Some(parameter), Some(number)) = (found, crate::ethtool::number(bytes)) else { continue };
        let value = match parameter.form {
            Encoding::OrNone if number == u32::MAX => continue,
            Encoding::Exponent => 1u64.checked_shl(number).unwrap_or(0),
            Encoding::U32 | Encoding::Byte | Encoding::OrNone => u64::from(number),
        };
        values.insert(parameter.keyword, value);
    }
    values
}
