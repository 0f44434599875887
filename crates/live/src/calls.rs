//! The call of a controller that reads another host.

use std::time::Duration;

use clearstream_control::{Call, CallContext, READ_WITHIN, Registration, Service};
use clearstream_schema::{
    control::{Failure, FailureKind},
    live::LiveSample,
    scope::Right,
};
use serde::{Deserialize, Serialize};

use crate::{Collector, CollectorOptions};

/// Bounds of an interval: an agent serves one call at a time.
const INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(60);

/// Returns the sample of the current interval at its end. The first call begins the first interval; between calls
/// the interval goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadLive {
    /// Name that the samples have.
    pub host: String,
    /// What is collected; the same in every call of a session.
    pub options: CollectorOptions,
}

impl Call for ReadLive {
    const NAME: &'static str = "read-live";
    const NEEDS: Right = Right::Measure;
    type Reply = LiveSample;

    fn reply_within(&self) -> Duration {
        Duration::from_nanos(self.options.interval_ns) + READ_WITHIN
    }
}

/// Samples its host.
#[derive(Debug, Default)]
pub struct LiveAgent {
    collector: Option<(ReadLive, Collector)>,
}

impl Service for LiveAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(|agent, call: ReadLive, context| agent.read(call, context));
    }
}

impl LiveAgent {
    fn read(&mut self, mut call: ReadLive, context: &CallContext<'_>) -> Result<LiveSample, Failure> {
        if !INTERVAL.contains(&Duration::from_nanos(call.options.interval_ns)) {
            return Err(Failure {
                kind: FailureKind::Invalid,
                message: format!("an interval is from {:?} to {:?}", INTERVAL.start(), INTERVAL.end()),
            });
        }
        // A pairing permits to measure: peers and programs of other users are shown to those who can log in.
        if context.controller().is_some() {
            call.options.connection_count = 0;
        }
        let collector = match self.collector.take() {
            Some((same, collector)) if same == call => collector,
            _ => Collector::open(&call.host, call.options),
        };
        let (_, collector) = self.collector.insert((call, collector));
        Ok(collector.next_sample())
    }
}
