//! Ranks of storage measurements as processes of MPI jobs on the hosts of a lab: who they are, what they leave when
//! they are killed, and Slurm as their launcher.

use crate::common;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{Lab, assert_valid, clearstream, eventually, finish, run, signal};
use clearstream_testkit::lab::two_hosts;
use serde_json::Value;

/// An MPI library: its launcher, and the library that the command loads.
struct Mpi {
    mpirun: &'static str,
    library: PathBuf,
}

impl Mpi {
    /// Builds the library as a user does (`extras/mpi/library/build`).
    fn new(name: &str, mpirun: &'static str, folder: &Path) -> Self {
        let library = folder.join(format!("libclearstream_mpi.{name}.so"));
        common::build_mpi_library(&format!("mpicc.{name}"), &library);
        Self { mpirun, library }
    }

    fn both(folder: &Path) -> [Self; 2] {
        [Self::new("openmpi", "mpirun.openmpi", folder), Self::new("mpich", "mpirun.mpich", folder)]
    }

    /// Arguments of a measurement by two ranks on each host.
    fn arguments(&self, verb: &str, directory: &Path, lab: &str, own: &[&str]) -> Vec<String> {
        let place = ["storage", verb, directory.to_str().unwrap(), "--lab", lab, "--hosts", "there,here"];
        let job = ["--tasks", "2", "--mpirun", self.mpirun, "--mpi-library", self.library.to_str().unwrap()];
        [&place[..], &job, own].concat().iter().map(|&field| field.to_owned()).collect()
    }
}

fn fields(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

fn entries(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().flatten();
    names.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Processes of ranks that use a library.
fn ranks(library: &Path) -> Vec<u32> {
    let ids = fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = common::program().to_str().unwrap();
    let is_rank = |id: &u32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let fields: Vec<&str> =
            line.split(|byte| *byte == 0).filter_map(|field| str::from_utf8(field).ok()).collect();
        fields.first() == Some(&own)
            && fields.contains(&"--mpi")
            && fields.contains(&library.to_str().unwrap())
    };
    ids.filter(is_rank).collect()
}

#[test]
fn root_ranks_of_several_hosts_measure_one_file_system() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "storage-ranks");
    let directory = folder.path().join("data");
    fs::create_dir(&directory).unwrap();
    for mpi in Mpi::both(folder.path()) {
        let own = ["-F", "-b", "1MiB", "-t", "64KiB", "-W", "--reorder", "constant", "-i", "2", "--json"];
        let document = run(&fields(&mpi.arguments("stream", &directory, &lab.0, &own))).json();
        assert_valid("storage-stream", &document);
        assert_eq!(document["complete"], true, "{document}");
        let points = document["points"].as_array().unwrap();
        assert_eq!(points.len(), 4, "{document}");
        for point in points {
            assert_eq!(point["bytes"], 4 << 20, "{point}");
            let hosts: Vec<&str> = point["ranks"]
                .as_array()
                .unwrap()
                .iter()
                .map(|rank| rank["host"].as_str().unwrap())
                .collect();
            assert_eq!(hosts, ["there", "there", "here", "here"], "{}", mpi.mpirun);
        }
        // Each rank reads what the other host wrote: no notice that they did not.
        assert!(!document["notices"].to_string().contains("reorder-within-host"), "{document}");

        let own = ["-n", "10", "-N", "2", "--json"];
        let document = run(&fields(&mpi.arguments("metadata", &directory, &lab.0, &own))).json();
        assert_valid("storage-metadata", &document);
        assert_eq!(document["hosts"], serde_json::json!(["here", "there"]), "{document}");
        let of_files = |phase: &&Value| phase["kind"] == "file";
        let phases: Vec<&Value> = document["phases"].as_array().unwrap().iter().filter(of_files).collect();
        assert_eq!(phases.len(), 5, "{document}");
        assert!(phases.iter().all(|phase| phase["rank_counts"] == serde_json::json!([10, 10, 10, 10])));
        // What one job leaves another one removes, each item looked at by a rank of the other host.
        for (own, expected) in [(&["-C", "-F", "-n", "10", "-u"][..], 40), (&["-T", "-r"], 40)] {
            let own = [own, &["--name", "kept", "--json"]].concat();
            let document = run(&fields(&mpi.arguments("metadata", &directory, &lab.0, &own))).json();
            let counts = document["phases"].as_array().unwrap().iter().filter(of_files);
            let counts: Vec<u64> = counts.map(|phase| phase["operation_count"].as_u64().unwrap()).collect();
            assert!(counts.iter().all(|count| *count == expected), "{document}");
            let removal =
                document["phases"].as_array().unwrap().iter().find(|it| it["operation"] == "remove");
            assert!(removal.is_none_or(|phase| phase.get("client_cache").is_none()), "{document}");
        }
        assert_eq!(entries(&directory), Vec::<String>::new(), "{}", mpi.mpirun);
    }
    // A library of another MPI than the launcher's leaves each rank alone.
    let [openmpi, mpich] = Mpi::both(folder.path());
    let wrong = Mpi { library: openmpi.library, ..mpich };
    let arguments = wrong.arguments("stream", &directory, &lab.0, &["-b", "1MiB"]);
    assert_eq!(run(&fields(&arguments)).code(), 5);
    eventually(Duration::from_secs(15), "nothing is left", || entries(&directory).is_empty());
}

/// Ranks of a launcher that is not their library's are each alone: all say so, whatever they were to do.
#[test]
fn ranks_of_a_foreign_launcher_are_refused_and_say_why() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = folder.path().join("data");
    fs::create_dir(&directory).unwrap();
    let [openmpi, mpich] = Mpi::both(folder.path());
    for (launcher, library) in [(openmpi.mpirun, &mpich.library), (mpich.mpirun, &openmpi.library)] {
        let target = directory.to_str().unwrap();
        for job in [
            &["storage", "stream", target, "-b", "1MiB"][..],
            &["storage", "metadata", target, "-n", "10"],
            &["explore", "leader"],
        ] {
            let mut command = common::mpirun(launcher, 2);
            command.arg(common::program()).args(job).arg("--mpi").arg("--mpi-library").arg(library);
            let ended = finish(command.spawn().unwrap(), Duration::from_secs(60));
            assert_eq!(ended.code(), 5, "{launcher} {job:?}: {}", ended.stderr);
            let said = ended.stderr.matches("clearstream: the launcher started 2 ranks").count();
            // A launcher ends the others with the first one.
            assert!((1..=2).contains(&said), "{launcher} {job:?}: {}", ended.stderr);
            assert_eq!(entries(&directory), Vec::<String>::new(), "{launcher} {job:?}");
        }
    }
}

/// A rank that is killed in a phase ends the job within 10 s, is named, and leaves nothing; what others have in the
/// directory stays.
#[test]
fn root_a_killed_rank_is_named_and_leaves_no_files() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "storage-killed");
    let directory = folder.path().join("data");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("thesis.tex"), "of others").unwrap();
    let long_write = ["-F", "-b", "1GiB", "-t", "4KiB", "-e"];
    let long_read = ["-F", "-b", "16MiB", "-t", "4KiB", "--pause", "3s"];
    let many_items = ["-n", "3000000"];
    for mpi in Mpi::both(folder.path()) {
        let cases = [
            ("stream", &long_write[..], "there"),
            ("stream", &long_read, "here"),
            ("metadata", &many_items, "here"),
        ];
        for (verb, own, host) in cases {
            let arguments = mpi.arguments(verb, &directory, &lab.0, own);
            let child = clearstream(&fields(&arguments)).spawn().unwrap();
            let files = || entries(&directory).len() == 2;
            eventually(Duration::from_secs(30), "the ranks work", || {
                files() && ranks(&mpi.library).len() == 4
            });
            std::thread::sleep(Duration::from_millis(300));
            let of_host = |id: &&u32| {
                let name = Command::new("nsenter").args(["-u", "-t", &id.to_string(), "hostname"]).output();
                String::from_utf8(name.unwrap().stdout).unwrap().trim() == host
            };
            let rank = *ranks(&mpi.library).iter().find(of_host).unwrap();
            let begin = Instant::now();
            signal(rank, "KILL");
            let ended = finish(child, Duration::from_secs(30));
            let case = format!("{} {verb} {host}: {}", mpi.mpirun, ended.stderr);
            assert!(begin.elapsed() < Duration::from_secs(10), "{case}");
            assert_eq!(ended.code(), 6, "{case}");
            assert!(ended.stderr.contains(&format!("on {host}: ended by signal 9")), "{case}");
            eventually(Duration::from_secs(90), "the files are removed", || {
                entries(&directory) == ["thesis.tex"] && ranks(&mpi.library).is_empty()
            });
        }
    }
}

/// Without MPI, the ranks are threads of one process.
#[test]
fn files_of_a_killed_process_of_ranks_are_removed() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().to_str().unwrap();
    for own in [&["stream", path, "-b", "4GiB", "-t", "4KiB"][..], &["metadata", path, "-n", "3000000"]] {
        let child = clearstream(&[&["storage"], own].concat()).spawn().unwrap();
        eventually(Duration::from_secs(20), "it works", || !entries(directory.path()).is_empty());
        std::thread::sleep(Duration::from_millis(200));
        let agents = common::children(child.id());
        agents.iter().for_each(|agent| signal(*agent, "KILL"));
        let ended = finish(child, Duration::from_secs(20));
        assert_eq!(ended.code(), 6, "{}", ended.stderr);
        eventually(Duration::from_secs(30), "the files are removed", || entries(directory.path()).is_empty());
    }
}

/// A cluster of two nodes.
fn slurm(folder: &Path, name: &str) -> Lab {
    let service = |host: &str| {
        format!(
            r#"[[host.service]]
name = "node"
package = "slurmd"
command = ["slurmd", "-D", "-N", "{host}", "-f", "{{shared}}/slurm.conf"]
ready-port = 6818
"#
        )
    };
    let controller = r#"[[host.service]]
name = "controller"
package = "slurmctld"
command = ["sh", "-c", "mkdir -p {shared}/state {shared}/here {shared}/there && cp slurm.conf {shared}/ && exec slurmctld -D -i -f {shared}/slurm.conf"]
ready-port = 6817
[host.service.files]
"slurm.conf" = """
ClusterName=lab
SlurmctldHost=here(10.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={shared}/state
SlurmdSpoolDir={shared}/%n
TmpFS={shared}/%n
SlurmdPidFile={shared}/slurmd.%n.pid
SlurmctldPidFile={shared}/slurmctld.pid
NodeName=here NodeAddr=10.0.0.1 CPUs=4
NodeName=there NodeAddr=10.0.0.2 CPUs=4
PartitionName=lab Nodes=here,there Default=YES OverSubscribe=FORCE:4
"""
"#;
    let ready = r#"ready = ["env", "SLURM_CONF={shared}/slurm.conf", "sh", "-c", "[ $(sinfo -h -N -t idle | wc -l) = 2 ]"]
"#;
    let [here, there] = ["here", "there"].map(|host| format!("name = \"{host}\"\n"));
    let text = two_hosts(name, "")
        .replace(&here, &format!("{here}{controller}{}", service("here")))
        .replace(&there, &format!("{there}{}{ready}", service("there")));
    let path = folder.join("slurm.toml");
    fs::write(&path, text).unwrap();
    Lab::up(&path, name)
}

/// `srun` starts the ranks of every workload that has ranks, on the nodes that were named and in their order.
#[test]
fn root_slurm_starts_ranks_on_its_nodes() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let lab = slurm(folder.path(), "storage-slurm");
    let variable = format!("/run/clearstream/labs/{}/shared/slurm.conf", lab.0);
    let directory = folder.path().join("data");
    fs::create_dir(&directory).unwrap();
    let mpi = Mpi::new("openmpi", "srun", folder.path());
    let start =
        |arguments: &[String]| clearstream(&fields(arguments)).env("SLURM_CONF", &variable).spawn().unwrap();
    let measured = |arguments: &[String]| finish(start(arguments), Duration::from_secs(60)).json();
    let own = ["-b", "1MiB", "-t", "64KiB", "-W", "--json"];
    let document = measured(&mpi.arguments("stream", &directory, &lab.0, &own));
    let ranks_of = |point: &Value| point["ranks"].as_array().unwrap().clone();
    let hosts: Vec<Value> =
        ranks_of(&document["points"][0]).iter().map(|rank| rank["host"].clone()).collect();
    assert_eq!(hosts, ["there", "there", "here", "here"], "{document}");

    // Messages: over MPI's own TCP, and over RDMA by the provider of libfabric.
    common::link_provider();
    let library = mpi.library.to_str().unwrap();
    for transport in ["mpi", "mpi-iwarp"] {
        let line = ["message", "--lab", &lab.0, "-s", "64KiB", "-n", "20", "-O", "1ms", "--verify", "--json"];
        let job = ["--transport", transport, "--mpirun", "srun", "--mpi-library", library];
        let arguments: Vec<String> =
            [&line[..], &job].concat().iter().map(|&field| field.to_owned()).collect();
        let document = measured(&arguments);
        let hosts = &document["mpi"]["ranks"];
        assert_eq!((&hosts[0]["host"], &hosts[1]["host"]), (&"here".into(), &"there".into()), "{document}");
        let sent = document["points"][0]["interfaces"]["client_sent_bytes"].as_u64().unwrap();
        assert!(sent >= 20 * 65536, "{document}");
    }

    // As a user starts ranks in an allocation: each is this command, and rank 0 prints.
    let own = common::program().to_str().unwrap();
    let line = [
        "lab",
        "exec",
        &lab.0,
        "here",
        "--",
        "srun",
        "--ntasks-per-node=2",
        "-N",
        "2",
        own,
        "explore",
        "--mpi",
    ];
    let model = ["--mpi-library", mpi.library.to_str().unwrap(), "peterson", "--json"];
    let arguments: Vec<String> = [&line[..], &model].concat().iter().map(|&field| field.to_owned()).collect();
    let document = measured(&arguments);
    let hosts: Vec<&str> =
        document["ranks"].as_array().unwrap().iter().map(|rank| rank["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, ["here", "here", "there", "there"], "{document}");

    // A rank that is killed.
    let child = start(&mpi.arguments("stream", &directory, &lab.0, &["-F", "-b", "1GiB", "-t", "4KiB"]));
    eventually(Duration::from_secs(30), "the ranks work", || {
        !entries(&directory).is_empty() && ranks(&mpi.library).len() >= 4
    });
    std::thread::sleep(Duration::from_millis(300));
    let rank = |id: &u32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|item| item == b"PMIX_RANK=1")
    };
    let killed = ranks(&mpi.library).into_iter().find(rank).unwrap();
    let begin = Instant::now();
    signal(killed, "KILL");
    let ended = finish(child, Duration::from_secs(60));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}: {}", begin.elapsed(), ended.stderr);
    assert!(ended.stderr.contains("rank 1 on there: ended by signal 9"), "{}", ended.stderr);
    eventually(Duration::from_secs(30), "the files are removed", || entries(&directory).is_empty());
}
