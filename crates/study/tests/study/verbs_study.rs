//! The built-in study `iwarp-verbs`: what it compares with what.

use std::collections::BTreeMap;

use clearstream_schema::study::{Experiment, Figure, Levels};
use clearstream_study::file;

use crate::common::registry;

/// Sections 3.2 and 3.3: what MPI costs by formula 1, and bandwidth beside work.
#[test]
fn the_verbs_study_has_the_overhead_of_mpi_and_the_overlap_of_work() {
    let study = file::load("iwarp-verbs", &registry()).unwrap();
    let of = |name: &str| study.experiments.iter().find(|one| one.name == name).unwrap();
    let option = |one: &Experiment, name: &str| {
        serde_json::to_value(one).unwrap()[&one.workload][name].as_str().map(str::to_owned)
    };
    let levels = |factors: &BTreeMap<String, Levels>, name: &str| match &factors[name] {
        Levels::Listed(levels) => levels.clone(),
        Levels::Named(_) => Vec::new(),
    };
    for name in ["mpi-latency", "mpi-throughput", "mpi-bandwidth", "mpi-bidirectional"] {
        let (own, raw) = (of(name), of(&name.replace("mpi", "tcp")));
        assert_eq!(own.beside.as_ref(), Some(&raw.name));
        assert_eq!(own.figure, Some(Figure::Overhead), "{name}");
        assert_eq!(option(own, "transport").as_deref(), Some("mpi"), "{name}");
        // Compared is what differs in the transport only, at each size of the one over MPI.
        for name in ["kind", "window"] {
            assert_eq!(option(own, name), option(raw, name), "{}", own.name);
        }
        assert_eq!(own.metric, raw.metric, "{name}");
        let quick = |one: &Experiment| levels(&one.quick.as_ref().unwrap().factors, "size");
        for (sizes, theirs) in
            [(levels(&own.factors, "size"), levels(&raw.factors, "size")), (quick(own), quick(raw))]
        {
            assert!(sizes.iter().all(|size| theirs.contains(size)), "{name}: {sizes:?}, {theirs:?}");
        }
    }
    // "around 10% for iWARP, compared to 20% for TCP"
    let overhead = &of("mpi-throughput").published[0];
    assert_eq!((overhead.metric.as_str(), overhead.unit.as_str()), ("throughput-overhead", "%"));
    assert_eq!((overhead.low, overhead.high), (Some(20.0), Some(20.0)));
    let (iwarp, tcp) = (of("overlap-iwarp"), of("overlap-tcp"));
    assert_eq!(iwarp.beside.as_ref(), Some(&tcp.name));
    assert_eq!(levels(&iwarp.factors, "progress"), ["inline", "offloaded", "adaptive"]);
    let (mpi_iwarp, mpi) = (of("overlap-mpi-iwarp"), of("overlap-mpi"));
    assert_eq!(mpi_iwarp.beside.as_ref(), Some(&mpi.name));
    for (one, transport) in [(iwarp, "iwarp"), (tcp, "tcp"), (mpi_iwarp, "mpi-iwarp"), (mpi, "mpi")] {
        assert_eq!(option(one, "transport").as_deref(), Some(transport));
        assert_eq!(levels(&one.factors, "method"), ["polling", "post-work-wait"], "{transport}");
    }
}
