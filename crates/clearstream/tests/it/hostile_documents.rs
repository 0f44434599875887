//! What comes from elsewhere is read in one place, taken apart without a panic, and refused in every form that is no
//! document: by all commands, within memory for a document.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    common::{self, finish, program},
    dependency_rules::{all_but, root, sources},
};

/// Longest that a command here may take, on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(60);

/// What a command may take of memory, in KiB (RLIMIT_DATA, setrlimit(2)).
const DATA_KIBIBYTES: u32 = 256 << 10;

/// A kind of document: how a command reads `$FILE`, and whether texts that mean nothing are refused.
struct Kind {
    arguments: &'static str,
    is_strict: bool,
}

const fn strict(arguments: &'static str) -> Kind {
    Kind { arguments, is_strict: true }
}

const fn lax(arguments: &'static str) -> Kind {
    Kind { arguments, is_strict: false }
}

const KINDS: [Kind; 15] = [
    strict("$CS plan verify $FILE"),
    strict("$CS plan show $FILE"),
    strict("$CS route plan $FILE"),
    strict("$CS lab up $FILE"),
    strict("$CS study run $FILE --to localhost --dry-run"),
    strict("$CS explore $FILE"),
    strict("$CS inspect --from $FILE"),
    strict("chmod 600 $FILE; $CS probe 127.0.0.1:1 --pairing $FILE --count 1"),
    lax("CLEARSTREAM_CONFIG=$FILE $CS defaults"),
    strict("mkdir $DIR/run; mv $FILE $DIR/run/run.json; $CS report $DIR/run -o $DIR/out"),
    strict("mkdir $DIR/run; mv $FILE $DIR/run/run.json; $CS diagnose --from $DIR/run"),
    lax(
        "mkdir $DIR/run; cp $RECORD/run.json $DIR/run; mv $FILE $DIR/run/trials.jsonl; $CS runs show $DIR/run",
    ),
    lax("$CS tune lint $FILE"),
    lax("$CS tune lint $DIR/none --mute-file $FILE"),
    lax("$CS route lint $FILE"),
];

/// Runs a command with `$FILE`, which `make` makes. The folder may be written by its name only.
fn read(kind: &Kind, make: &dyn Fn(&Path)) -> common::Run {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("document.toml.model");
    let file = if kind.arguments.contains("explore") { file } else { folder.path().join("document.toml") };
    fs::write(folder.path().join("none"), "").unwrap();
    make(&file);
    let (before, last) =
        kind.arguments.rsplit_once("; ").map_or(("", kind.arguments), |(one, two)| (one, two));
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{before}\nulimit -d {DATA_KIBIBYTES}; {last}")])
        .env("CS", program())
        .env("DIR", folder.path())
        .env("FILE", &file)
        .env("RECORD", root().join("fixtures/records/clearstream-40ge"));
    finish(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), LIMIT)
}

/// The name of what was read, in whichever place the command has it.
fn is_named(run: &common::Run) -> bool {
    ["document.toml", "run.json", "trials.jsonl", "/run", "experiment e"]
        .iter()
        .any(|name| run.stderr.contains(name))
}

/// Puts something in the place of a document.
type Make<'a> = &'a dyn Fn(&Path);

#[test]
fn what_is_no_regular_file_is_refused_by_every_reader() {
    let fifo = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let endless = |path: &Path| symlink("/dev/zero", path).unwrap();
    let sparse = |path: &Path| fs::File::create(path).unwrap().set_len(8 << 30).unwrap();
    let makes: [(&str, Make); 3] = [("fifo", &fifo), ("endless", &endless), ("sparse", &sparse)];
    for kind in &KINDS {
        for (what, make) in makes {
            let run = read(kind, make);
            let described = format!("{what}: {}: {}", kind.arguments, run.stderr);
            assert!([2, 7].contains(&run.code()), "exit code {}: {described}", run.code());
            assert!(is_named(&run), "{described}");
        }
    }
}

#[test]
fn texts_that_are_no_document_are_refused_by_every_reader() {
    const LENGTH: usize = 1 << 20;
    let repeated = ["[", "{\"a\":", "a = [", "(", "a+", "x"]
        .map(|piece| piece.repeat(LENGTH / piece.len()).into_bytes());
    let tokens = ["", "null", "true", "1", "\"x\"", "[]", "{}", "[1]"].map(|text| text.as_bytes().to_vec());
    let chain = format!(
        "model m\nvariable x : 0..1\nprocess p {{\n state a\n a -> a when {}x == 0\n}}\n",
        "x+".repeat(200_000)
    );
    let levels = (0..400).map(|level| level.to_string()).collect::<Vec<_>>().join(", ");
    let study = format!(
        "schema = \"clearstream.study\"\nversion = 1\nname = \"s\"\ntitle = \"S\"\n[[experiment]]\nname = \"e\"\n\
         title = \"E\"\nworkload = \"flow\"\nfigure = \"throughput\"\n[experiment.factors]\n\
         flows = [{levels}]\ndestination-port = [{levels}]\nreceive-low-water = [{levels}]\n"
    );
    let fabric = fs::read_to_string(root().join("fabrics/gateways-6.toml")).unwrap();
    let fabric = fabric.replacen("[1-6]", "[1-200000]", 1);
    let own = [("explore", chain), ("study", study), ("route plan", fabric)];
    let mut any: Vec<Vec<u8>> = repeated.into();
    any.push(vec![0xff; LENGTH]);
    // Of each reader one command has texts of the whole length: the others would take their time again.
    let readers = ["plan show", "route plan", "explore", "runs show", "tune lint $FILE"];
    for kind in &KINDS {
        let length =
            if readers.iter().any(|verb| kind.arguments.contains(verb)) { LENGTH } else { LENGTH / 8 };
        let own = own.iter().filter(|(verb, _)| kind.arguments.contains(verb));
        let own = own.map(|(_, text)| text.as_bytes().to_vec());
        let tokens = tokens.iter().filter(|_| kind.is_strict).cloned();
        for text in any.iter().map(|text| text[..length.min(text.len())].to_vec()).chain(tokens).chain(own) {
            let run = read(kind, &|path| fs::write(path, &text).unwrap());
            let shown = String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned();
            let described =
                format!("{shown:?}: {}: exit code {}: {}", kind.arguments, run.code(), run.stderr);
            let codes: &[i32] = if kind.is_strict { &[2, 7] } else { &[0, 2, 7, 8] };
            assert!(codes.contains(&run.code()), "{described}");
            assert!(run.code() == 0 || run.code() == 8 || is_named(&run), "{described}");
        }
    }
}

/// A folder of runs and a captured host are read on without the files that are none.
#[test]
fn folders_from_elsewhere_are_read_without_what_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let record = root().join("fixtures/records/clearstream-40ge");
    for name in ["good", "fifo", "endless"] {
        let run = folder.path().join("runs").join(name);
        fs::create_dir_all(&run).unwrap();
        for file in ["run.json", "trials.jsonl"] {
            fs::copy(record.join(file), run.join(file)).unwrap();
        }
    }
    let at = |name: &str| folder.path().join(name);
    fs::remove_file(at("runs/endless/trials.jsonl")).unwrap();
    fs::remove_file(at("runs/fifo/run.json")).unwrap();
    symlink("/dev/zero", at("runs/endless/trials.jsonl")).unwrap();
    symlink("/dev/zero", at("runs/.runs-index.json")).unwrap();
    symlink("/dev/zero", at("runs/good/check.json")).unwrap();
    fs::create_dir_all(at("host/proc/sys/kernel")).unwrap();
    fs::write(at("host/proc/stat"), "cpu  1 2 3 4 5 6 7 8 9 10\n").unwrap();
    for fifo in ["runs/fifo/run.json", "host/proc/cpuinfo", "host/proc/interrupts"] {
        assert!(Command::new("mkfifo").arg(at(fifo)).status().unwrap().success());
    }
    let run = |arguments: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -d {DATA_KIBIBYTES}; $CS {arguments}")])
            .env("CS", program())
            .env("DIR", folder.path());
        finish(
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
            LIMIT,
        )
    };
    let listed = run("runs list $DIR/runs --json");
    let runs = listed.json();
    let names: Vec<_> = runs["runs"].as_array().unwrap().iter().map(|run| &run["name"]).collect();
    assert_eq!(names, ["good"], "{}", listed.stderr);
    run("inspect --from $DIR/host").ok();
}

/// The code before the tests, whatever attributes they have.
fn program_of(code: &str) -> &str {
    code.split("mod tests {").next().unwrap_or_default()
}

/// Where the programs have one of these texts, as `FILE: TEXT`.
fn uses(barred: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, code) in all_but(&["testkit"]).into_iter().flat_map(sources) {
        let path = path.strip_prefix(root()).unwrap().display().to_string();
        let code = program_of(&code);
        found
            .extend(barred.iter().filter(|text| code.contains(**text)).map(|text| format!("{path}: {text}")));
    }
    found.sort();
    found
}

/// `sys::document` says why. These places open something else, or bound what they read by themselves.
#[test]
fn files_are_opened_and_read_in_one_place() {
    let barred = [
        "File::open(",
        "File::options(",
        "OpenOptions::new().read(true)",
        "fs::read(",
        "fs::read_to_string",
        "from_reader(",
    ];
    let expected = [
        // The null device.
        "crates/lab/src/keeper.rs: File::options(",
        // The folder itself, to be locked.
        "crates/plan/src/folder.rs: File::open(",
        // Locked, or written to as well: of the folder of journals, which is root's.
        "crates/plan/src/journal.rs: File::open(",
        "crates/plan/src/journal.rs: OpenOptions::new().read(true)",
        "crates/plan/src/standing.rs: File::open(",
        // Folders, to be synced.
        "crates/record/src/file.rs: File::open(",
        // The owner.
        "crates/sys/src/document.rs: OpenOptions::new().read(true)",
        // Folders, to be synced.
        "crates/sys/src/file.rs: File::open(",
        // Namespaces of processes.
        "crates/sys/src/namespace.rs: File::open(",
        // A device.
        "crates/sys/src/tun.rs: OpenOptions::new().read(true)",
    ];
    assert_eq!(uses(&barred), expected);
}

/// `sys::lines` says why. These bound what they read by themselves.
#[test]
fn streams_are_read_with_a_limit_in_one_place() {
    let barred =
        ["read_line(&mut", ".lines().map_while", "read_to_end(", "read_to_string(&mut", "read_until("];
    let expected = [
        // The first part of a program, for its kind of file.
        "crates/clearstream/src/verbs/rdma/run.rs: read_to_end(",
        // The first line of a script.
        "crates/clearstream/src/verbs/rdma/spreload.rs: read_to_end(",
        // An entry, after its size.
        "crates/host/src/capture/archive.rs: read_to_end(",
        // A file, up to the limit of its reader.
        "crates/host/src/root.rs: read_to_end(",
        // The end of a log.
        "crates/lab/src/services.rs: read_to_end(",
        // A message, after its length.
        "crates/ranks/src/tcp.rs: read_to_end(",
        // Files of a known size.
        "crates/storage/src/semantics/folder.rs: read_to_end(",
        "crates/storage/src/semantics/races.rs: read_to_end(",
        // The owners.
        "crates/sys/src/document.rs: read_to_end(",
        "crates/sys/src/lines.rs: read_until(",
        // A number.
        "crates/sys/src/writer_lock.rs: read_to_string(&mut",
    ];
    assert_eq!(uses(&barred), expected);
}

/// What is as long as its writer says is not indexed: the compiler refuses it.
#[test]
fn crates_that_read_what_others_write_deny_indexing() {
    let readers = [
        "admission",
        "configfile",
        "control",
        "dashboard",
        "host",
        "iperf3",
        "lint",
        "live",
        "mpirun",
        "netconfig",
        "plan",
        "record",
        "schema",
        "tune",
    ];
    for name in readers {
        let head = fs::read_to_string(root().join("crates").join(name).join("src/lib.rs")).unwrap();
        assert!(head.contains("#![cfg_attr(not(test), deny(clippy::indexing_slicing))]"), "{name}");
    }
}

/// `value["key"] = ...` panics where the value is no object, and reads come before it: what is parsed is taken apart by
/// `get`, `as_object_mut` and `pointer`. These index values that they have made themselves.
#[test]
fn json_of_others_is_not_indexed() {
    let is_index = |line: &str| {
        let mut rest = line;
        while let Some(at) = rest.find("[\"") {
            let before = rest[..at].chars().next_back();
            let inside = rest[at + 2..].split('"').next().unwrap_or_default();
            let after = rest[at + 2 + inside.len()..].starts_with("\"]");
            if after && before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ']' || c == ')') {
                return true;
            }
            rest = &rest[at + 2..];
        }
        false
    };
    let mut found = BTreeSet::new();
    for folder in all_but(&[]) {
        for (path, code) in sources(folder) {
            if program_of(&code).lines().any(is_index) {
                found.insert(path.strip_prefix(root()).unwrap().display().to_string());
            }
        }
    }
    let expected = [
        "crates/clearstream/src/output/daemon.rs",
        "crates/clearstream/src/output/rdma/server.rs",
        "crates/clearstream/src/output/schemas.rs",
        "crates/clearstream/src/verbs/diagnose/mod.rs",
        "crates/clearstream/src/verbs/diagnose/socket.rs",
    ];
    assert_eq!(found, expected.into_iter().map(str::to_owned).collect());
}
