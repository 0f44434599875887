//! What rank 0 prints where the ranks measure by themselves.

use clearstream_schema::mpi::MpiRank;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A line of results; `P` is a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[serde(bound(serialize = "P: Serialize", deserialize = "P: DeserializeOwned"))]
pub enum Line<P> {
    /// Both ranks have started.
    Ranks(Started),
    /// A message size, or an interval of work, is measured.
    Point(Box<P>),
    /// All of them are measured.
    End,
    /// The ranks go on.
    #[serde(skip)]
    Running,
    /// The only point, and the end.
    #[serde(skip)]
    Result(Box<P>),
}

/// Who takes part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// Version string of the library.
    pub library: String,
    /// Version of the standard.
    pub standard: String,
    /// The ranks.
    pub ranks: Vec<MpiRank>,
}

impl<P: DeserializeOwned> Line<P> {
    /// Reads a line of rank 0; none for text that MPI libraries and launchers print.
    pub fn parse(text: &str) -> Option<Self> {
        clearstream_schema::json::from_str(text.trim()).ok()
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::mpi::InterfaceBytes;
    use serde::{Deserialize, Serialize};

    /// What is read of a point.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Point {
        size_bytes: u64,
        interfaces: Option<InterfaceBytes>,
    }

    type Line = super::Line<Point>;

    #[test]
    fn lines_of_the_program_are_read_and_text_of_launchers_is_not() {
        // As printed by a run with Open MPI 4.1.4.
        let ranks = r#"{"event":"ranks","library":"Open MPI v4.1.4","standard":"3.1","ranks":[{"rank":0,"host":"here","process":29425},{"rank":1,"host":"there","process":29424}]}"#;
        let Some(Line::Ranks(started)) = Line::parse(ranks) else { panic!("{ranks}") };
        assert_eq!(started.ranks[1].host, "there");
        let point = r#"{"event":"point","size_bytes":1024,"iteration_count":10,"server_received_count":10,"client_received_count":10,"elapsed_ns":83995373,"latency":{"min_ns":2922587,"mean_ns":4199738,"p50_ns":3998393,"p99_ns":6007344,"max_ns":6007344},"throughput_bps":1950583.635,"client_cpu_ratio":0.450406,"server_cpu_ratio":0.458787,"interfaces":{"client_sent_bytes":11186,"server_sent_bytes":11224}}"#;
        let Some(Line::Point(point)) = Line::parse(point) else { panic!("{point}") };
        assert_eq!((point.size_bytes, point.interfaces.unwrap().server_sent_bytes), (1024, 11224));
        assert_eq!(Line::parse(r#"{"event":"end"}"#), Some(Line::End));
        let written = clearstream_schema::json::to_string(&Line::Ranks(started)).unwrap();
        assert_eq!(written, ranks, "as it is read");
        assert_eq!(Line::parse("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"), None);
    }
}
