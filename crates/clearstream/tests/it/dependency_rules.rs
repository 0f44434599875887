//! The map in ARCHITECTURE.md, enforced: which crate may use which, which may be
//! unsafe, print, read arguments or open files of the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use serde_json::Value;

/// Crates by their group in the map of ARCHITECTURE.md, from the top down; a crate uses its own group and those below.
static GROUPS: LazyLock<Vec<Vec<String>>> = LazyLock::new(|| {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let map =
        text.split("## Map").nth(1).and_then(|rest| rest.split("\n\nBeside the crates").next()).unwrap();
    let mut groups: Vec<Vec<String>> = Vec::new();
    for row in map.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let Some(name) = cells[2].strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
        if !cells[1].is_empty() {
            groups.push(Vec::new());
        }
        groups.last_mut().unwrap().push(name.to_owned());
    }
    groups
});
const TLS_AND_ASYNC: [&str; 4] = ["async-std", "smol", "openssl-sys", "native-tls"];

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).unwrap()
}

/// Cargo's metadata of this workspace and everything it links.
pub(crate) static METADATA: LazyLock<Value> = LazyLock::new(|| {
    // What a fresh clone lacks (dependencies of other members than were built) is fetched,
    // for this platform alone.
    let host = Command::new(env!("CARGO")).args(["-vV"]).output().unwrap();
    let host = String::from_utf8(host.stdout).unwrap();
    let platform = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", platform])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
});

pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

/// Folder of a crate under `crates/`, from its package name.
fn folder(package: &str) -> &str {
    package.strip_prefix("clearstream-").unwrap_or(package)
}

/// Packages in `crates/`, by folder.
fn crates() -> BTreeMap<&'static str, &'static Value> {
    let inside = root().join("crates");
    list(&METADATA, "packages")
        .iter()
        .filter(|package| Path::new(package["manifest_path"].as_str().unwrap()).starts_with(&inside))
        .map(|package| (folder(package["name"].as_str().unwrap()), package))
        .collect()
}

/// Names that a package depends on; those of its tests left out.
fn dependencies(package: &Value) -> BTreeSet<&str> {
    list(package, "dependencies")
        .iter()
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .map(|dependency| dependency["name"].as_str().unwrap())
        .collect()
}

fn group(folder: &str) -> usize {
    let place = GROUPS.iter().position(|group| group.iter().any(|name| name == folder));
    place.unwrap_or_else(|| panic!("crates/{folder} is in no group of the map in ARCHITECTURE.md"))
}

/// Source files of a crate, and the part of each that is no test and no comment.
pub(crate) fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(&root().join("crates").join(folder).join("src"), &mut files);
    files
        .into_iter()
        .filter(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            name != "tests" && !name.ends_with("_tests") && !path.iter().any(|part| part == "tests")
        })
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let code = without_test_modules(&text);
            (path, code)
        })
        .collect()
}

/// Test modules come last in a file (house style), so the rest ends at the
/// first one that has a body.
fn without_test_modules(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut code = String::new();
    while let Some(line) = lines.next() {
        let has_body = |next: &&str| next.trim_end().ends_with('{') || next.starts_with("#[allow(");
        if line.trim() == "#[cfg(test)]" && lines.peek().is_some_and(has_body) {
            break;
        }
        if !line.trim_start().starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Every place in the folders where one of the texts stands.
pub(crate) fn places(folders: &[&str], texts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for folder in folders {
        for (path, code) in sources(folder) {
            for text in texts.iter().filter(|text| code.contains(**text)) {
                found.push(format!("{}: {text}", path.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    found
}

pub(crate) fn all_but(excluded: &[&str]) -> Vec<&'static str> {
    crates().into_keys().filter(|folder| !excluded.contains(folder)).collect()
}

#[test]
fn crates_use_only_their_group_and_those_below() {
    let crates = crates();
    for (name, package) in &crates {
        for used in dependencies(package) {
            let used = folder(used);
            if crates.contains_key(used) {
                assert!(group(used) >= group(name), "{name} must not use {used}, which is above it");
            }
        }
    }
}

/// Crates with a workload, as the command registers them; those who plan, keep and draw measurements know a workload by its
/// contract and its documents only.
fn workloads() -> Vec<&'static str> {
    let registered = fs::read_to_string(root().join("crates/clearstream/src/workloads.rs")).unwrap();
    let is_named = |name: &&str| registered.contains(&format!("clearstream_{}::", name.replace('-', "_")));
    all_but(&["workload", "clearstream"]).into_iter().filter(is_named).collect()
}

#[test]
fn studies_records_and_reports_name_no_workload() {
    let crates = crates();
    for name in ["workload", "study", "record", "report"] {
        let used = dependencies(crates[name]);
        let named: Vec<_> =
            workloads().into_iter().filter(|one| used.iter().any(|u| folder(u) == *one)).collect();
        assert!(named.is_empty(), "{name} names {named:?}");
    }
}

/// Where the report reads documents of workloads, for the figures that are theirs alone, and for what storage says of
/// who measured and of caches. Everything else is drawn from metrics, series and settings, which every workload has.
const READERS_OF_DOCUMENTS: [&str; 3] =
    ["crates/report/src/csv.rs", "crates/report/src/digest.rs", "crates/report/src/storage.rs"];

#[test]
fn studies_and_records_name_no_document_of_a_workload() {
    let (constants, names) = workload_documents();
    assert!(constants.contains(&"FLOW_SUMMARY_SCHEMA".to_owned()), "{constants:?}");
    let quoted = names.iter().map(|name| format!("\"{name}\""));
    let texts: Vec<String> = constants.iter().cloned().chain(quoted).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert_eq!(places(&["workload", "study", "record"], &texts), Vec::<String>::new());
    let found = places(&["report"], &texts);
    let elsewhere: Vec<_> = found
        .iter()
        .filter(|place| !READERS_OF_DOCUMENTS.iter().any(|file| place.starts_with(&format!("{file}:"))))
        .collect();
    assert!(elsewhere.is_empty(), "draw from metrics, series and settings: {elsewhere:?}");
    for file in READERS_OF_DOCUMENTS {
        assert!(found.iter().any(|place| place.starts_with(file)), "{file} needs no entry any more");
    }
}

/// Constants and names of the documents that workloads add to their outcomes, found where they do.
fn workload_documents() -> (Vec<String>, Vec<String>) {
    let folders = workloads().into_iter().chain(["schema"]);
    let all: Vec<String> = folders.flat_map(sources).map(|(_, code)| code).collect();
    let mut constants: Vec<String> = all
        .iter()
        .flat_map(|code| code.split(".with_detail(").skip(1))
        .filter_map(|rest| Some(rest.split_once(',')?.0.trim().to_owned()))
        .collect();
    constants.sort();
    constants.dedup();
    let name_of = |constant: &String| {
        let declared = format!("pub const {constant}: &str = \"");
        let name = all.iter().find_map(|code| Some(code.split_once(declared.as_str())?.1.split_once('"')?.0));
        name.unwrap_or_else(|| panic!("{constant}: declare it in one line")).to_owned()
    };
    let names = constants.iter().map(name_of).collect();
    assert!(constants.len() >= workloads().len(), "every workload has one: {constants:?}");
    (constants, names)
}

#[test]
fn the_bottom_uses_no_member() {
    let crates = crates();
    for name in GROUPS.last().unwrap() {
        let members = |used: &&str| crates.contains_key(folder(used)) && folder(used) != "schema-derive";
        let used: Vec<_> = dependencies(crates[name.as_str()]).into_iter().filter(members).collect();
        assert!(used.is_empty(), "{name} uses {used:?}");
    }
}

/// A dev-dependency of everybody; what it links itself is below all its users.
#[test]
fn only_tests_use_the_testkit() {
    assert!(only_tests_use("clearstream-testkit"), "it is a dev-dependency");
    let members: Vec<_> = dependencies(crates()["testkit"])
        .into_iter()
        .filter_map(|name| name.strip_prefix("clearstream-"))
        .collect();
    assert_eq!(members, ["schema", "sys"], "more would be a cycle for the tests of what is added");
}

/// Crates, beside those of workloads, whose configurations are options of the command line by their own derive. They parse
/// nothing.
const DEFINE_OPTIONS: [&str; 3] = ["schema", "workload", "place"];

#[test]
fn only_netlink_names_netlink_and_only_options_name_clap() {
    for (name, package) in crates() {
        for used in dependencies(package) {
            assert!(!used.starts_with("netlink-") || name == "netlink", "{name} names {used}");
            let defines = DEFINE_OPTIONS.contains(&name) || workloads().contains(&name);
            let may_parse = name == "clearstream" || (defines && used == "clap");
            assert!(!used.starts_with("clap") || may_parse, "{name} names {used}");
        }
        for dependency in list(package, "dependencies") {
            let features: Vec<_> = list(dependency, "features").iter().filter_map(Value::as_str).collect();
            let is_schema = dependency["name"] == "clearstream-schema";
            assert!(
                !(is_schema && features.contains(&"cli")) || ["clearstream", "workload"].contains(&name),
                "{name} requests clap"
            );
            if name == "schema" && dependency["name"] == "clap" {
                assert_eq!(dependency["optional"], true, "clap is behind a feature of schema");
            }
        }
    }
}

#[test]
fn there_is_no_async_runtime_and_one_tls() {
    for package in list(&METADATA, "packages") {
        let name = package["name"].as_str().unwrap();
        assert!(!TLS_AND_ASYNC.contains(&name), "{name} is linked");
        // The live page's thread has the one runtime.
        let dependencies = list(package, "dependencies").iter().filter_map(|one| one["name"].as_str());
        let is_member = name.starts_with("clearstream");
        if is_member && dependencies.clone().any(|one| ["tokio", "hyper", "hyper-util"].contains(&one)) {
            assert_eq!(name, "clearstream-dashboard", "an async runtime outside of the live page");
        }
    }
}

/// Where unsafe code may be besides `sys`: registered memory, which a peer and
/// the kernel write while the program runs.
const REGISTERED_MEMORY: &str = "crates/iwarp/src/memory/";

#[test]
fn unsafe_is_in_sys_and_in_registered_memory_alone() {
    assert!(root().join(REGISTERED_MEMORY).is_dir(), "there is no {REGISTERED_MEMORY}");
    for name in all_but(&[]) {
        // A program beside a library is a line; the workspace's lint denies
        // unsafe there.
        let source = root().join("crates").join(name).join("src");
        let head = ["lib.rs", "main.rs"].iter().find_map(|head| fs::read_to_string(source.join(head)).ok());
        let forbids = head.unwrap().contains("#![forbid(unsafe_code)]");
        assert_eq!(forbids, !["sys", "iwarp"].contains(&name), "crates/{name}: #![forbid(unsafe_code)]");
    }
    // One module of `iwarp` allows it, once, and is the one that has any.
    let allowed: Vec<_> = places(&["iwarp"], &["allow(unsafe_code", "expect(unsafe_code"]);
    assert_eq!(allowed, [format!("{REGISTERED_MEMORY}mod.rs: allow(unsafe_code")]);
    let elsewhere: Vec<_> = places(&["iwarp"], &["unsafe {", "unsafe fn", "unsafe impl"])
        .into_iter()
        .filter(|place| !place.starts_with(REGISTERED_MEMORY))
        .collect();
    assert_eq!(elsewhere, Vec::<String>::new());
}

/// Beside the crates: an interface for C takes pointers.
#[test]
fn extras_are_safe_but_for_interfaces_of_c() {
    for extra in fs::read_dir(root().join("extras")).unwrap() {
        let folder = extra.unwrap().path();
        if !folder.join("Cargo.toml").exists() {
            continue; // C
        }
        let head = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        let forbids = head.contains("#![forbid(unsafe_code)]");
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert_eq!(forbids, !manifest.contains("cdylib"), "{}: #![forbid(unsafe_code)]", folder.display());
    }
}

#[test]
fn the_protocol_of_iwarp_does_no_input_or_output_and_reads_no_clock() {
    let barred = [
        "std::net",
        "std::time",
        "std::thread",
        "std::fs",
        "std::io",
        "std::os",
        "net::",
        "Instant",
        "rustix",
        "libc",
        "socket2",
        "clearstream_sys",
    ];
    let protocol = ["mpa", "ddp", "rdmap", "queue_pair"];
    for module in protocol {
        let source = root().join("crates/iwarp/src");
        let is_there = source.join(module).is_dir() || source.join(module).with_extension("rs").is_file();
        assert!(is_there, "there is no {module}");
    }
    let found: Vec<_> = places(&["iwarp"], &barred)
        .into_iter()
        .filter(|place| {
            let file = place.strip_prefix("crates/iwarp/src/").unwrap();
            protocol.contains(&file.split(['/', '.']).next().unwrap())
        })
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

/// Bytes in, events out: the protocol is tested and fuzzed without peers.
#[test]
fn the_protocol_of_iperf3_does_no_input_or_output_and_reads_no_clock() {
    let barred = [
        "std::net",
        "std::time",
        "std::thread",
        "std::io",
        "Instant",
        "rustix",
        "socket2",
        "clearstream_sys",
    ];
    let protocol = [
        "protocol.rs",
        "object.rs",
        "parameters.rs",
        "results.rs",
        "datagram_header.rs",
        "client/machine.rs",
        "server/machine.rs",
    ];
    for file in protocol {
        assert!(root().join("crates/iperf3/src").join(file).is_file(), "there is no {file}");
    }
    let found: Vec<_> = places(&["iperf3"], &barred)
        .into_iter()
        .filter(|place| {
            let file = place.strip_prefix("crates/iperf3/src/").unwrap().split(':').next().unwrap();
            protocol.contains(&file)
        })
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_crate_takes_the_workspace_lints_and_they_forbid_printing() {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap().parse::<toml::Table>().unwrap();
    for (name, package) in crates() {
        let manifest = read(package["manifest_path"].as_str().unwrap().into());
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace"));
        assert_eq!(inherits.and_then(toml::Value::as_bool), Some(true), "{name}: [lints] workspace = true");
    }
    let workspace = read(root().join("Cargo.toml"));
    for lint in ["print_stdout", "print_stderr", "dbg_macro", "undocumented_unsafe_blocks"] {
        assert!(workspace["workspace"]["lints"]["clippy"].get(lint).is_some(), "clippy::{lint}");
    }
}

#[test]
fn engines_neither_print_nor_read_arguments() {
    let below = all_but(&["clearstream"]);
    let barred = [
        "println!(",
        "print!(",
        "eprintln!(",
        "eprint!(",
        "clippy::print_std",
        "env::args",
        "process::exit(",
    ];
    assert_eq!(places(&below, &barred), Vec::<String>::new());
    // An agent speaks its protocol over its standard streams: that is control's. Text is made for the terminal that they
    // are: that is output's.
    let silent = all_but(&["clearstream", "control", "output"]);
    assert_eq!(places(&silent, &["io::stdout", "io::stderr", "io::stdin"]), Vec::<String>::new());
}

#[test]
fn only_host_sys_and_lab_know_the_kernels_files() {
    // `host` reads them below a root, `sys` and `lab` enter and make
    // namespaces through them.
    let others = all_but(&["host", "sys", "lab", "clearstream"]);
    assert_eq!(places(&others, &["\"/proc", "\"/sys/"]), Vec::<String>::new());
}

#[test]
fn report_reads_records_and_nothing_else() {
    let barred = [
        "std::net",
        "TcpStream",
        "UdpSocket",
        "UnixStream",
        "TcpListener",
        "std::process",
        "\"/proc",
        "\"/sys",
    ];
    assert_eq!(places(&["report"], &barred), Vec::<String>::new());
    let used = dependencies(crates()["report"]);
    for barred in
        ["socket2", "rustix", "libc", "clearstream-sys", "clearstream-control", "clearstream-netlink"]
    {
        assert!(!used.contains(barred), "report uses {barred}");
    }
}

#[test]
fn raw_system_calls_are_in_sys_and_in_registered_memory_alone() {
    for name in all_but(&["sys", "iwarp"]) {
        assert!(!dependencies(crates()[name]).contains("libc"), "{name} uses libc: that belongs into sys");
    }
    let elsewhere: Vec<_> = places(&["iwarp"], &["libc::"])
        .into_iter()
        .filter(|place| !place.starts_with(REGISTERED_MEMORY))
        .collect();
    assert_eq!(elsewhere, Vec::<String>::new());
}

/// No member of the workspace depends on it but for its tests.
fn only_tests_use(name: &str) -> bool {
    list(&METADATA, "packages")
        .iter()
        .filter(|package| package["source"].is_null())
        .all(|package| !dependencies(package).contains(name))
}

/// One copy of the derived code of each type: `schema::json` says why. These read or write by themselves.
#[test]
fn documents_are_read_and_written_in_one_place() {
    let mut others: Vec<_> = places(&all_but(&[]), &["serde_json::from_", "serde_json::to_"]);
    others.sort();
    let expected = [
        // Bodies of frames stay text.
        "crates/control/src/frame.rs: serde_json::to_",
        "crates/control/src/session/decode.rs: serde_json::from_",
        // The head of many records, and samples, which come by the million.
        "crates/record/src/catalogue.rs: serde_json::from_",
        "crates/record/src/lines.rs: serde_json::from_",
        "crates/schema/src/json.rs: serde_json::from_",
        "crates/schema/src/json.rs: serde_json::to_",
    ];
    assert_eq!(others, expected);
}
