//! The example of docs/extending.md: a workload that is one file, with the calls
//! of its agents, run by a study over a lab, drawn and compared, with no other
//! file of the program changed.

use std::{path::Path, process::Command, time::Duration};

use crate::common::{Lab, finish};
use clearstream_control::{Call, Done};
use clearstream_host::calls::Inspect;
use clearstream_record::Reader;
use clearstream_schema::scope::Right;
use clearstream_study::{PRACTICAL_RATIO, compare_levels};
use serde::{Deserialize, Serialize};

/// Programs of the package `workload` are not this package's: cargo reports where
/// it has put them.
fn example(name: &str) -> std::path::PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_clearstream"));
    program.parent().unwrap().join("examples").join(name)
}

#[test]
fn root_the_example_workload_is_run_drawn_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = Lab::of_two_hosts(folder.path(), "extending");
    let run = folder.path().join("run");
    let mut command = Command::new(example("handshake"));
    command
        .arg("extending")
        .arg(&run)
        // Its agents are itself.
        .env_remove("CLEARSTREAM")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let output = finish(command.spawn().unwrap(), Duration::from_secs(60));
    assert!(output.ok().contains("36 of 36 trials done"), "{}", output.stdout);
    let reader = Reader::open(&run).unwrap();
    for trial in reader.trials().unwrap() {
        let trial = trial.unwrap();
        let outcome = trial.outcome.measured().unwrap();
        assert!(outcome.metric("handshake").unwrap().value > 0.0);
        let points = outcome.series[0].points.len() as u64;
        assert_eq!(Some(points), trial.factors["count"].as_u64(), "one point for each connection");
        assert_eq!(reader.samples::<serde_json::Value>(&trial).unwrap().count() as u64, points);
    }
    let page = clearstream_report::html(&reader).unwrap();
    assert!(page.contains("Time of a handshake: handshake against count"), "the figure is there");
    assert!(page.contains("figure-by-count-handshake"));
    let csv = clearstream_report::csv(&reader).unwrap();
    assert!(csv.lines().next().unwrap().ends_with("handshake_ns,handshake_p99_ns"), "{csv}");
    let compared = compare_levels(&reader, "mtu=1500", "mtu=9000", None, PRACTICAL_RATIO).unwrap();
    assert_eq!(compared.cells.len(), 3);
    assert!(compared.cells.iter().all(|cell| cell.metric.name == "handshake" && cell.pair_count == 6));
}

/// What an agent of the example serves: its own calls beside those of the host, and no others.
#[test]
fn the_example_is_an_agent_with_calls_of_its_own() {
    #[derive(Serialize, Deserialize)]
    struct Accept {}
    impl Call for Accept {
        const NAME: &'static str = "handshake-accept";
        const NEEDS: Right = Right::Measure;
        type Reply = Done;
    }
    #[derive(Serialize, Deserialize)]
    struct Unknown {}
    impl Call for Unknown {
        const NAME: &'static str = "handshake-unknown";
        const NEEDS: Right = Right::Measure;
        type Reply = Done;
    }
    let mut command = Command::new(example("handshake"));
    command.arg("agent");
    let mut peer = clearstream_control::spawn(command, "toy").unwrap();
    assert!(!peer.call(&Inspect {}).unwrap().processing_units.is_empty());
    let refused = peer.call(&Accept {}).unwrap_err().to_string();
    assert!(refused.contains("nothing listens here"), "its own refusal: {refused}");
    let refused = peer.call(&Unknown {}).unwrap_err().to_string();
    assert!(refused.contains("handshake-unknown"), "{refused}");
}
