//! Metrics for Prometheus, by its conventions (<https://prometheus.io/docs/practices/naming/>), in the text format of
//! OpenMetrics 1.0: of `live`, of `route watch`, and of `serve`.

mod format;
mod live;
mod serve;
mod watch;

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet, text::encode},
    metrics::MetricType::{self, Counter},
    registry::Registry,
};

pub(crate) use format::in_accepted_format;
pub use live::LiveMetrics;
pub use serve::{ServeCounts, serve_exposition};
pub use watch::watch_exposition;

use crate::Exposition;

/// A family of samples: name, kind, description. Samples of a counter have the suffix `_total`.
struct Family(&'static str, MetricType, &'static str);

/// Adds a family, if it has samples.
fn add<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    Family(name, kind, help): Family,
    samples: &[(L, f64)],
) -> fmt::Result {
    if samples.is_empty() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in samples {
        let mut sample = family.encode_family(labels)?;
        match kind {
            Counter => sample.encode_counter::<NoLabelSet, _, f64>(value, None)?,
            _ => sample.encode_gauge(value)?,
        }
    }
    Ok(())
}

/// The text of a state that is read when it is scraped.
fn exposition<C: Collector>(
    prefix: &'static str,
    read: impl Fn() -> C + Send + Sync + 'static,
) -> Exposition {
    Arc::new(move || {
        let mut registry = Registry::with_prefix(prefix);
        registry.register_collector(Box::new(read()));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    })
}
