//! Results that the ends exchange after a test: one JSON object.

use serde_json::{Value, json};

use crate::{
    error::ProtocolError,
    object::{Object, parse},
    parameters::STREAMS_MAX,
};

/// Maximum length of the results: 256 streams have 60 KiB, plus a server's own output.
pub(crate) const LIMIT: u32 = 4 << 20;

/// One end's results.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    /// CPU time of the process in percent of elapsed time: all, user, system.
    pub cpu_percent: [f64; 3],
    /// Whether the end sends with a protocol whose retransmits it knows.
    pub has_retransmits: Retransmits,
    /// Congestion control of its sockets.
    pub congestion_control: Option<String>,
    /// Output of the server.
    pub server_output: Option<String>,
    /// Each stream.
    pub streams: Vec<StreamResult>,
}

/// Availability of retransmit counts; iperf3's -1, 0 and 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Retransmits {
    /// It receives only.
    #[default]
    NoSender,
    /// Not known to it.
    Unknown,
    /// Known for every stream.
    Known,
}

/// One stream, as counted by its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamResult {
    /// iperf3's number of the stream.
    pub id: u32,
    /// Bytes sent or received, the warm-up excluded.
    pub bytes: u64,
    /// Segments retransmitted.
    pub retransmit_count: Option<u64>,
    /// Jitter in seconds.
    pub jitter_s: f64,
    /// Datagrams lost, the warm-up included.
    pub lost_count: u64,
    /// Datagrams sent, or the highest number received, the warm-up included.
    pub datagram_count: u64,
    /// The same two counts in the warm-up; absent from versions before 3.13.
    pub omitted: Option<Omitted>,
    /// Duration in seconds; absent from versions before 3.2.
    pub time_s: Option<f64>,
}

/// Counts of the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Datagrams lost.
    pub lost_count: u64,
    /// Datagrams sent, or the highest number received.
    pub datagram_count: u64,
}

/// Number that iperf3 gives to the stream at `index`: 1, 3, 4, 5, ...
pub(crate) fn stream_id(index: usize) -> u32 {
    u32::try_from(if index == 0 { 1 } else { index + 2 }).unwrap_or(u32::MAX)
}

impl Results {
    /// Encodes the message.
    pub fn to_json(&self) -> Value {
        let [total, user, system] = self.cpu_percent;
        let mut document = json!({
            "cpu_util_total": total,
            "cpu_util_user": user,
            "cpu_util_system": system,
            "sender_has_retransmits": match self.has_retransmits {
                Retransmits::NoSender => -1,
                Retransmits::Unknown => 0,
                Retransmits::Known => 1,
            },
            "streams": self.streams.iter().map(StreamResult::to_json).collect::<Vec<_>>(),
        });
        let texts =
            [("congestion_used", &self.congestion_control), ("server_output_text", &self.server_output)];
        if let Some(document) = document.as_object_mut() {
            let given =
                texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text.clone()?.into())));
            document.extend(given);
        }
        document
    }

    /// Parses the message of a peer.
    ///
    /// # Errors
    /// It is not a JSON object, or lacks a key that every version sends.
    pub fn read(text: &[u8]) -> Result<Self, ProtocolError> {
        let document = parse("results", text)?;
        let keys = Object::new("results", &document)?;
        let percent = |key: &str| Ok::<_, ProtocolError>(keys.number(key)?.unwrap_or(0.0).max(0.0));
        let streams = keys.list("streams", STREAMS_MAX as usize * 2)?;
        Ok(Self {
            cpu_percent: [percent("cpu_util_total")?, percent("cpu_util_user")?, percent("cpu_util_system")?],
            has_retransmits: match keys.number("sender_has_retransmits")? {
                Some(number) if number < 0.0 => Retransmits::NoSender,
                Some(number) if number > 0.0 => Retransmits::Known,
                _ => Retransmits::Unknown,
            },
            congestion_control: keys.text("congestion_used", 64)?.map(str::to_owned),
            server_output: keys.text("server_output_text", LIMIT as usize)?.map(str::to_owned),
            streams: streams.iter().map(StreamResult::read).collect::<Result<_, _>>()?,
        })
    }
}

impl StreamResult {
    fn to_json(&self) -> Value {
        let omitted = self.omitted.unwrap_or_default();
        json!({
            "id": self.id,
            "bytes": self.bytes,
            "retransmits": self.retransmit_count.map_or(json!(-1), Value::from),
            "jitter": self.jitter_s,
            "errors": self.lost_count,
            "omitted_errors": omitted.lost_count,
            "packets": self.datagram_count,
            "omitted_packets": omitted.datagram_count,
            "start_time": 0,
            "end_time": self.time_s.unwrap_or(0.0),
        })
    }

    fn read(keys: &Object<'_>) -> Result<Self, ProtocolError> {
        let must = |key: &str| keys.count(key)?.ok_or_else(|| keys.wrong(format!("a stream lacks {key}")));
        let omitted = match (keys.count("omitted_errors")?, keys.count("omitted_packets")?) {
            (None, None) => None,
            (lost, datagrams) => {
                Some(Omitted { lost_count: lost.unwrap_or(0), datagram_count: datagrams.unwrap_or(0) })
            }
        };
        let time_s = match (keys.number("start_time")?, keys.number("end_time")?) {
            (Some(start), Some(end)) => Some(end - start).filter(|time| *time > 0.0),
            _ => None,
        };
        Ok(Self {
            id: u32::try_from(must("id")?).map_err(|_| keys.wrong("id must fit 32 bits".to_owned()))?,
            bytes: must("bytes")?,
            retransmit_count: keys.count("retransmits")?,
            jitter_s: keys.number("jitter")?.unwrap_or(0.0).max(0.0),
            lost_count: keys.count("errors")?.unwrap_or(0),
            datagram_count: keys.count("packets")?.unwrap_or(0),
            omitted,
            time_s,
        })
    }

    /// Datagrams expected and lost after the warm-up; with a version that does not separate the warm-up, in
    /// the whole test.
    pub(crate) fn measured(&self) -> (u64, u64) {
        let omitted = self.omitted.unwrap_or_default();
        (
            self.datagram_count.saturating_sub(omitted.datagram_count),
            self.lost_count.saturating_sub(omitted.lost_count),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_as_they_were_written() {
        let results = Results {
            cpu_percent: [12.5, 2.5, 10.0],
            has_retransmits: Retransmits::Known,
            congestion_control: Some("cubic".to_owned()),
            server_output: None,
            streams: vec![
                StreamResult {
                    id: 1,
                    bytes: u64::MAX - 5,
                    retransmit_count: Some(7),
                    time_s: Some(10.5),
                    omitted: Some(Omitted::default()),
                    ..StreamResult::default()
                },
                StreamResult {
                    id: 3,
                    lost_count: 5,
                    datagram_count: 100,
                    omitted: Some(Omitted { lost_count: 2, datagram_count: 20 }),
                    jitter_s: 0.000_015,
                    ..StreamResult::default()
                },
            ],
        };
        let read = Results::read(results.to_json().to_string().as_bytes()).unwrap();
        assert_eq!(read, results);
        assert_eq!(read.streams[1].measured(), (80, 3));
    }

    /// What a server of version 3.12 sends: no counts of the warm-up.
    #[test]
    fn results_of_an_older_version_are_read() {
        let text = r#"{"cpu_util_total":30.1,"cpu_util_user":1,"cpu_util_system":29.1,
            "sender_has_retransmits":-1,"congestion_used":"cubic","streams":[{"id":1,"bytes":1310720,
            "retransmits":-1,"jitter":0,"errors":3,"packets":50,"start_time":0,"end_time":1.000123}]}"#;
        let read = Results::read(text.as_bytes()).unwrap();
        let stream = &read.streams[0];
        assert_eq!((stream.retransmit_count, stream.omitted), (None, None));
        assert_eq!((stream.measured(), stream.time_s), ((50, 3), Some(1.000123)));
        assert_eq!(read.has_retransmits, Retransmits::NoSender);
    }

    #[test]
    fn keys_of_every_version_are_required() {
        for text in [
            "{}",
            r#"{"streams":{}}"#,
            r#"{"streams":[7]}"#,
            r#"{"streams":[{"id":1}]}"#,
            r#"{"streams":[{"id":5000000000,"bytes":1}]}"#,
            r#"{"streams":[{"id":1,"bytes":-1}]}"#,
            r#"{"streams":[{"id":1,"bytes":1,"jitter":"x"}]}"#,
        ] {
            assert!(Results::read(text.as_bytes()).is_err(), "{text}");
        }
        let many = format!(r#"{{"streams":[{}]}}"#, vec![r#"{"id":1,"bytes":1}"#; 257].join(","));
        assert!(Results::read(many.as_bytes()).is_err());
    }

    #[test]
    fn streams_have_iperf3s_numbers() {
        assert_eq!([0, 1, 2, 3].map(stream_id), [1, 3, 4, 5]);
    }
}
