//! Ranks whose messages go by RDMA over TCP, and what Debian's MPICH says to it.

use crate::message_mpi::{
    common::{Lab, assert_valid, run},
    library::{Library, libraries, wheels},
};

/// Both ranks load the provider of libfabric, and reach each other over the lab's link.
#[test]
fn root_mpi_over_iwarp_reaches_the_other_host_by_rdma_or_is_refused() {
    let [open_mpi, mpich] = libraries() else { unreachable!("two") };
    let folder = tempfile::tempdir().unwrap();
    let name = format!("mpi-iwarp-{}", std::process::id());
    let _lab = Lab::of_two_hosts(folder.path(), &name);
    let arguments = |library: &Library| {
        let all = ["message", "--lab", &name, "-O", "1ms", "-s", "64KiB", "-n", "20", "--verify", "--json"];
        let own = ["--transport", "mpi-iwarp", "--mpirun", &library.mpirun, "--mpi-library", library.path()];
        all.iter().chain(&own).map(|&field| field.to_owned()).collect::<Vec<_>>()
    };
    let measured = |library| {
        let arguments = arguments(library);
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let document = measured(open_mpi).json();
    assert_valid("message", &document);
    let point = &document["points"][0];
    assert_eq!((&point["server_received_count"], &point["client_received_count"]), (&20.into(), &20.into()));
    // Both directions crossed the link: 20 messages of 64 KiB, and the frames around them.
    for side in ["client_sent_bytes", "server_sent_bytes"] {
        assert!(point["interfaces"][side].as_u64().unwrap() > 20 * 65536, "{point}");
    }
    let ranks = document["mpi"]["ranks"].as_array().unwrap();
    assert_ne!(ranks[0]["host"], ranks[1]["host"], "{document}");
    // Debian's is built for UCX: it would move the messages by TCP.
    measured(mpich).refused(5, &["without RDMA", "UCX"]);
}

/// Both methods of COMB between ranks on two hosts, over MPI's own TCP and over iWARP.
#[test]
fn root_work_beside_messages_of_ranks_on_two_hosts() {
    let [open_mpi, mpich] = libraries() else { unreachable!("two") };
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "mpi-overlap");
    let cases = [(open_mpi, "mpi"), (open_mpi, "mpi-iwarp"), (mpich, "mpi")];
    for ((library, transport), method) in
        cases.into_iter().flat_map(|case| ["polling", "post-work-wait"].map(|method| (case, method)))
    {
        let case = format!("{} {transport} {method}", library.name);
        let measured = ["-n", "20", "-O", "1ms", "-s", "4KiB", "--window", "8", "--work", "1000-10000"];
        let of_mpi = ["--transport", transport, "--mpirun", &library.mpirun, "--mpi-library", library.path()];
        let arguments = [&["overlap", "--lab", &lab.0, "--per-decade", "1", "--verify", "--json"][..]];
        let arguments = [arguments[0], &["--method", method], &measured, &of_mpi].concat();
        let document = run(&arguments).json();
        assert_valid("overlap", &document);
        assert_eq!(document["complete"], true, "{case}");
        let ranks = document["mpi"]["ranks"].as_array().unwrap();
        assert_eq!((&ranks[0]["host"], &ranks[1]["host"]), (&"here".into(), &"there".into()), "{case}");
        let points = document["points"].as_array().unwrap();
        let works: Vec<_> = points.iter().map(|point| point["work_count"].as_u64().unwrap()).collect();
        assert_eq!(works, [1000, 10_000], "{case}");
        for point in points {
            assert_eq!(point["cycle_count"], 20, "{case}: {point}");
            let received = point["client_received_count"].as_u64().unwrap();
            let sent = point["interfaces"]["client_sent_bytes"].as_u64().unwrap();
            assert!(sent >= received * 4096, "{case}: {point}");
            if method == "post-work-wait" {
                assert_eq!(received, 20 * 8, "{case}: {point}");
                let phases = ["post_ns", "work_ns", "wait_ns"].map(|name| point[name].as_u64().unwrap());
                assert_eq!(Some(phases.iter().sum()), point["elapsed_ns"].as_u64(), "{case}");
            }
        }
    }
    // An option of another transport, and a library that would use none of it.
    let own = ["--transport", "mpi-iwarp", "--mpirun", &mpich.mpirun, "--mpi-library", mpich.path()];
    let arguments = [&["overlap", "--lab", &lab.0, "-n", "2", "--work", "100"], &own[..]].concat();
    run(&arguments).refused(5, &["without RDMA", "UCX"]);
    run(&["overlap", "localhost", "--mpirun", "mpirun"]).refused(2, &["--transport mpi"]);
}

/// Open MPI 5 and MPICH 5: every kind of exchange, with each byte checked, by the library's own TCP and by RDMA, which the
/// ranks' library proves; what the kernel counts on the link is at least the messages.
#[test]
fn root_current_libraries_exchange_messages_by_tcp_and_by_rdma() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "mpi-wheels");
    for library in wheels() {
        for (transport, kind) in
            ["mpi", "mpi-iwarp"].iter().flat_map(|transport| KINDS.map(|kind| (transport, kind)))
        {
            let case = format!("{} {transport} {kind}", library.name);
            let launcher =
                ["--transport", transport, "--mpirun", &library.mpirun, "--mpi-library", library.path()];
            let measured = ["-s", "64KiB", "-n", "20", "-O", "1ms", "--verify", "--kind", kind, "--json"];
            let document = run(&[&["message", "--lab", &lab.0][..], &measured, &launcher].concat()).json();
            assert_valid("message", &document);
            assert_eq!(document["complete"], true, "{case}");
            let version = document["mpi"]["library"].as_str().unwrap();
            assert!(version.contains("v5.0.") || version.contains("5.0."), "{case}: {version}");
            let point = &document["points"][0];
            let received = point["server_received_count"].as_u64().unwrap();
            let sent = point["interfaces"]["client_sent_bytes"].as_u64().unwrap();
            assert!(received >= 20 && sent >= received * 65536, "{case}: {point}");
            let hosts = document["mpi"]["ranks"].as_array().unwrap();
            assert_eq!((&hosts[0]["host"], &hosts[1]["host"]), (&"here".into(), &"there".into()), "{case}");
        }
    }
}

const KINDS: [&str; 3] = ["ping-pong", "stream", "bidirectional"];
