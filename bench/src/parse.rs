//! Parsers of the programs' outputs for the two figures that are compared:
//! bytes that reached the receiver, and the time they took by its own clock.

use serde_json::Value;

/// A program's own result of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Goodput {
    /// At the receiver, bits per second.
    pub bps: f64,
    /// At the receiver.
    pub bytes: f64,
}

/// `iperf3 -J` of the client: `end.sum_received` is what the server counted.
/// Several processes print a document each, and their figures are added.
pub(crate) fn iperf3(output: &str) -> Result<Goodput, String> {
    let mut total = Goodput { bps: 0.0, bytes: 0.0 };
    for document in serde_json::Deserializer::from_str(output).into_iter::<Value>() {
        let document = document.map_err(|error| format!("no JSON: {error}"))?;
        if let Some(error) = document["error"].as_str() {
            return Err(error.to_owned());
        }
        let sum = &document["end"]["sum_received"];
        let own = both(sum["bits_per_second"].as_f64(), sum["bytes"].as_f64())?;
        total.bps += own.bps;
        total.bytes += own.bytes;
    }
    both(Some(total.bps), Some(total.bytes))
}

/// `tcp_stream` of neper, the client: `remote_throughput` is the server's own
/// rate in bits/s, over the length of the test in seconds.
pub(crate) fn neper(output: &str) -> Result<Goodput, String> {
    let value = |key: &str| {
        output.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')?.parse::<f64>().ok())
    };
    let rate = value("remote_throughput");
    both(rate, rate.zip(value("total_run_time")).map(|(rate, seconds)| rate / 8.0 * seconds))
}

/// `iperf -s -y C`: a line per connection, `time,local address,port,remote
/// address,port,id,interval,bytes,bits/s`. A line with id -1 is a sum of others.
pub(crate) fn iperf(output: &str) -> Result<Goodput, String> {
    let mut total = Goodput { bps: 0.0, bytes: 0.0 };
    for line in output.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        if let [_, _, _, _, _, id, _, bytes, bps, ..] = fields[..]
            && id != "-1"
        {
            total.bytes += bytes.parse::<f64>().map_err(|error| format!("{bytes}: {error}"))?;
            total.bps += bps.parse::<f64>().map_err(|error| format!("{bps}: {error}"))?;
        }
    }
    both(Some(total.bps), Some(total.bytes))
}

/// `nuttcp -fparse`: `megabytes=` (of 2^20 bytes), `rate_Mbps=` (of 10^6 bits).
pub(crate) fn nuttcp(output: &str) -> Result<Goodput, String> {
    let value = |key: &str| {
        output
            .split_whitespace()
            .find_map(|token| token.strip_prefix(key)?.strip_prefix('=')?.parse::<f64>().ok())
    };
    both(
        value("rate_Mbps").map(|rate| rate * 1e6),
        value("megabytes").map(|megabytes| megabytes * 1_048_576.0),
    )
}

/// `clearstream flow --json`.
pub(crate) fn clearstream(output: &str) -> Result<Goodput, String> {
    let document: Value = serde_json::from_str(output).map_err(|error| format!("no JSON: {error}"))?;
    let summary = &document["summary"];
    if summary["complete"] == Value::Bool(false) {
        return Err("the test ended early".to_owned());
    }
    both(summary["goodput_bps"].as_f64(), summary["received_bytes"].as_f64())
}

fn both(bps: Option<f64>, bytes: Option<f64>) -> Result<Goodput, String> {
    match (bps, bytes) {
        (Some(bps), Some(bytes)) if bps > 0.0 && bytes > 0.0 => Ok(Goodput { bps, bytes }),
        _ => Err("no goodput in the output".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 1e-9
    }

    #[test]
    fn captured_outputs_are_parsed() {
        let two = iperf3(include_str!("../fixtures/iperf3-2.json")).unwrap();
        assert!(close(two.bytes, 7_391_150_080.0) && close(two.bps, 29_556_560_935.425_564));
        assert!(iperf3(include_str!("../fixtures/iperf3-1.json")).unwrap().bps > 1e9);
        let newer = iperf3(include_str!("../fixtures/iperf3-3.22.json")).unwrap();
        assert!(close(newer.bytes, 1_517_289_472.0) && newer.bps > 1e9);
        // Two processes, one document after the other.
        let one = include_str!("../fixtures/iperf3-1.json");
        let sum = iperf3(&[one, one].concat()).unwrap();
        assert!(close(sum.bps, 2.0 * iperf3(one).unwrap().bps));
        let neper = neper(include_str!("../fixtures/neper.txt")).unwrap();
        assert!(neper.bps > 1e9 && close(neper.bytes, neper.bps / 8.0));
        let one = iperf(include_str!("../fixtures/iperf-1.csv")).unwrap();
        assert!(close(one.bytes, 11_671_699_516.0) && close(one.bps, 46_683_483_536.0));
        let two = iperf(include_str!("../fixtures/iperf-2.csv")).unwrap();
        assert!(close(two.bytes, 11_998_855_228.0 + 11_913_396_284.0));
        assert!(close(two.bps, 47_969_445_457.0 + 47_655_848_788.0));
        let one = nuttcp(include_str!("../fixtures/nuttcp-1.txt")).unwrap();
        assert!(close(one.bps, 25_057_530_700.0));
        // Its two figures agree: megabytes are of 2^20 bytes.
        assert!((one.bytes * 8.0 / 2.0 / one.bps - 1.0).abs() < 0.01);
        assert!(nuttcp(include_str!("../fixtures/nuttcp-2.txt")).is_ok());
    }

    #[test]
    fn a_failed_run_is_no_figure() {
        let error = iperf3(include_str!("../fixtures/iperf3-error.json")).unwrap_err();
        assert!(error.contains("TCP_CONGESTION"), "{error}");
        for text in ["", "{}", "nuttcp-t: Error: server not ACKing data", "1,2,3"] {
            assert!(iperf3(text).is_err() && iperf(text).is_err());
            assert!(nuttcp(text).is_err() && clearstream(text).is_err() && neper(text).is_err());
        }
        let early = r#"{"summary":{"complete":false,"goodput_bps":1.0,"received_bytes":1}}"#;
        assert!(clearstream(early).is_err());
    }
}
