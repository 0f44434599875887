//! Unmodified test suites over the library: those of rdma-core (pyverbs) and the programs of DAPL.

use crate::common;
use std::{fs, path::Path, process::Command};

use crate::common::{Capture, MPA_REQUEST, Network, Program, SERVER, count, pair};

/// Tests of rdma-core that apply to reliable connections of the connection manager over iWARP. Not here:
/// - `test_rdmacm_async_traffic` asserts the acknowledgement timeout of InfiniBand in the queue pair; the tests of Reads,
///   Writes, rejection and external queue pairs are asynchronous too;
/// - `test_rdmacm_async_udp_traffic`, multicast, and the UD, UC and raw part of `test_qp` need datagrams;
/// - `test_query_gid_ex_bad_flow` needs a table with empty entries, `DMTest` device memory;
/// - `test_create_rc_qp_ex_*` choose extended attributes at random, of which none is offered;
/// - `test_resize_cq` and all other files join queue pairs by ibv_modify_qp, or are for other extensions.
const RDMA_CORE: [(&str, &[&str]); 7] = [
    (
        "test_rdmacm.CMTestCase",
        &[
            "test_rdmacm_sync_traffic",
            "test_rdmacm_async_reject_traffic",
            "test_rdmacm_async_read",
            "test_rdmacm_async_write",
            "test_rdmacm_async_traffic_external_qp",
        ],
    ),
    (
        "test_pd.PDTest",
        &["test_alloc_pd", "test_dealloc_pd", "test_multiple_pd_creation", "test_destroy_pd_twice"],
    ),
    ("test_cq.CQAPITest", &["test_create_cq", "test_create_cq_bad_flow", "test_create_cq_with_comp_channel"]),
    ("test_fork.ForkAPITest", &["test_is_fork_initialized"]),
    (
        "test_device.DeviceTest",
        &[
            "test_dev_list",
            "test_open_dev",
            "test_phys_port_cnt_ex",
            "test_query_device",
            "test_query_device_ex",
            "test_query_gid",
            "test_query_gid_ex",
            "test_query_gid_table",
            "test_query_gid_table_bad_flow",
            "test_query_pkey",
            "test_query_port",
            "test_query_port_bad_flow",
        ],
    ),
    ("test_qp.QPTest", &["test_create_rc_qp_no_attr", "test_create_rc_qp_with_attr", "test_query_rc_qp"]),
    ("test_mr.MRTest", &["test_reg_mr_bad_flags"]),
];

/// Where the package puts them, compressed in part.
const INSTALLED: &str = "/usr/share/doc/rdma-core/tests";

#[test]
fn root_tests_of_rdma_core_pass() {
    assert!(
        Path::new(INSTALLED).exists(),
        "no {INSTALLED}: apt-get install python3-pyverbs (.ci/install test)"
    );
    let network = Network::new();
    let folder = tempfile::tempdir().unwrap();
    let tests = folder.path().join("tests");
    fs::create_dir(&tests).unwrap();
    for file in fs::read_dir(INSTALLED).unwrap() {
        fs::copy(file.as_ref().unwrap().path(), tests.join(file.unwrap().file_name())).unwrap();
    }
    let compressed = format!("gunzip {}/*.gz", tests.display());
    assert!(Command::new("sh").args(["-c", &compressed]).status().unwrap().success());
    let names: Vec<_> = RDMA_CORE
        .iter()
        .flat_map(|(class, methods)| methods.iter().map(move |method| format!("tests.{class}.{method}")))
        .collect();
    // They look up the address of the device's interface in sysfs.
    let script = format!(
        "mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/clearstream0/device/net/cs-verbs-a &&\n\
         cd {} && exec /usr/bin/python3 run_tests.py -v {}\n",
        tests.display(),
        names.join(" ")
    );
    let run = folder.path().join("run");
    fs::write(&run, script).unwrap();
    // Both ends are processes of this host, on an address that is not loopback.
    let ended = Program::start(&network.server, &[], &format!("unshare -m sh {}", run.display())).succeeds();
    for name in &names {
        let method = name.rsplit('.').next().unwrap();
        let at = ended.stderr.find(&format!("{method} (")).unwrap_or_else(|| panic!("{method}: {ended:?}"));
        let result = ended.stderr[at..].split(" ... ").nth(1).unwrap_or_default();
        // Lines of the library may come before the result.
        let result = result.lines().find(|line| !line.starts_with("clearstream-verbs:"));
        // The second half of this one is what `test_create_rc_qp_ex_*` do.
        let is_half =
            method == "test_query_rc_qp" && result.is_some_and(|line| line.starts_with("skipped 'Create RC"));
        assert!(result == Some("ok") || is_half, "{method}: {result:?}: {ended:?}");
    }
}

/// Runs a program of DAPL on both hosts.
fn dapl(network: &Network, folder: &Path, program: &str) -> [common::Ended; 2] {
    let line = |number: u32| {
        let file = folder.join(format!("dat.{number}"));
        // Named by its address, the provider finds the device on every host.
        let entry = "ofa-iwarp u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0";
        fs::write(&file, format!("{entry} \"10.77.0.{number} 0\" \"\"\n")).unwrap();
        format!("env DAT_OVERRIDE={} {program} -P ofa-iwarp", file.display())
    };
    // The others exchange addresses over TCP first.
    let port = if program.starts_with("dtestsrq") { 45248 } else { 15828 };
    pair(network, &[], port, [&line(1), &format!("{} -h {SERVER}", line(2))])
}

#[test]
fn root_programs_of_dapl_pass() {
    let network = Network::new();
    let folder = tempfile::tempdir().unwrap();
    let capture = Capture::start(&network.client);
    // Sends, Writes and Reads; `-D` compares the data, `-W` is ping-pong by Writes.
    for program in ["dtest -b 65536 -B 20", "dtest -W -D -b 4096 -B 10"] {
        for ended in dapl(&network, folder.path(), program) {
            assert!(ended.stdout.contains("PASSED"), "{program}: {ended:?}");
        }
    }
    // Twenty connections.
    dapl(&network, folder.path(), "dtestcm -c 20");
    // Messages numbered and checked over a shared receive queue; the program waits until the queue pair has left it.
    for program in ["dtestsrq", "dtestsrq -t 20"] {
        for ended in dapl(&network, folder.path(), program) {
            assert!(ended.stdout.contains("Test Complete") && !ended.stdout.contains("ERR"), "{ended:?}");
        }
    }
    assert_eq!(count(&capture.packets(), MPA_REQUEST), 1 + 1 + 20 + 1 + 1);
}
