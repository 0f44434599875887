//! Parameters of disciplines whose options are attributes: fq and fq_codel
//! (linux/pkt_sched.h, `TCA_FQ_*` and `TCA_FQ_CODEL_*`).

use std::collections::BTreeMap;

use super::measure::Measure;

/// One parameter.
#[derive(Debug)]
pub(super) struct Parameter {
    /// tc's word; for a switch, the word that turns it on.
    pub(super) word: &'static str,
    /// For a switch, the word that turns it off.
    pub(super) off: Option<&'static str>,
    pub(super) measure: Measure,
    attribute: u16,
    form: Form,
}

/// How an attribute holds the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Word,
    Byte,
    /// The exponent of a power of two.
    Exponent,
    /// All ones is "none", which is not shown.
    OrNone,
}

const fn word(word: &'static str, attribute: u16, measure: Measure) -> Parameter {
    Parameter { word, off: None, measure, attribute, form: Form::Word }
}

const fn formed(word: &'static str, attribute: u16, measure: Measure, form: Form) -> Parameter {
    Parameter { word, off: None, measure, attribute, form }
}

const fn switch(on: &'static str, off: &'static str, attribute: u16, form: Form) -> Parameter {
    Parameter { word: on, off: Some(off), measure: Measure::Count, attribute, form }
}

const FQ: &[Parameter] = &[
    word("limit", 1, Measure::Packets),
    word("flow_limit", 2, Measure::Packets),
    formed("buckets", 8, Measure::Count, Form::Exponent),
    word("orphan_mask", 10, Measure::Count),
    word("quantum", 3, Measure::Bytes),
    word("initial_quantum", 4, Measure::Bytes),
    word("low_rate_threshold", 11, Measure::Rate),
    formed("maxrate", 7, Measure::Rate, Form::OrNone),
    word("refill_delay", 9, Measure::Microseconds),
    formed("ce_threshold", 12, Measure::Microseconds, Form::OrNone),
    word("timer_slack", 13, Measure::Nanoseconds),
    word("horizon", 14, Measure::Microseconds),
    switch("horizon_drop", "horizon_cap", 15, Form::Byte),
    switch("pacing", "nopacing", 5, Form::Word),
];

const FQ_CODEL: &[Parameter] = &[
    word("limit", 2, Measure::Packets),
    word("flows", 5, Measure::Count),
    word("quantum", 6, Measure::Count),
    word("target", 1, Measure::Microseconds),
    formed("ce_threshold", 7, Measure::Microseconds, Form::OrNone),
    word("interval", 3, Measure::Microseconds),
    word("memory_limit", 9, Measure::Bytes),
    switch("ecn", "noecn", 4, Form::Word),
    word("drop_batch", 8, Measure::Count),
];

const PFIFO: &[Parameter] = &[word("limit", 0, Measure::Packets)];
const BFIFO: &[Parameter] = &[word("limit", 0, Measure::Bytes)];
const TBF: &[Parameter] = &[
    word("rate", 0, Measure::Rate),
    word("burst", 0, Measure::Bytes),
    word("limit", 0, Measure::Bytes),
    word("latency", 0, Measure::Microseconds),
    word("peakrate", 0, Measure::Rate),
    word("mtu", 0, Measure::Bytes),
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

/// Attributes, in the order of the table's words.
pub(super) fn encode(known: &[Parameter], values: &BTreeMap<&'static str, u64>) -> Vec<u8> {
    let mut out = Vec::new();
    for parameter in known {
        let Some(&value) = values.get(parameter.word) else { continue };
        // A rate beyond 32 bits of bytes per second is no limit to these kinds.
        let word = u32::try_from(value).unwrap_or(u32::MAX);
        match parameter.form {
            Form::Word | Form::OrNone => {
                super::fixed::attribute(&mut out, parameter.attribute, &word.to_ne_bytes())
            }
            Form::Byte => super::fixed::attribute(&mut out, parameter.attribute, &[u8::from(word != 0)]),
            Form::Exponent => {
                let exponent = word.max(1).ilog2();
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
            Form::OrNone if number == u32::MAX => continue,
            Form::Exponent => 1u64.checked_shl(number).unwrap_or(0),
            Form::Word | Form::Byte | Form::OrNone => u64::from(number),
        };
        values.insert(parameter.word, value);
    }
    values
}
