//! Files that are given by others: records, captures, plans, configurations.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use clearstream_configfile::{FileKind, Source as Document};
use clearstream_lint::{MuteList, sarif};
use clearstream_netconfig::{
    read::{self, Source},
    routes::{self, Format},
};
use clearstream_schema::{
    config::{CONFIG_SCHEMA, ConfigFile},
    hosts::{HOSTS_SCHEMA, HostsFile},
    plan::Plan,
    routing::table::TableText,
};
use clearstream_tune::{Assumed, HostState, lint, syntax};

use crate::text_of;

const NAMES: [&str; 16] = [
    "x.nmconnection",
    "x.network",
    "x.yaml",
    "ifcfg-x",
    "route-x",
    "rule6-x",
    "x.batch",
    "x.sh",
    "x.service",
    "x.nft",
    "sysctl.conf",
    "x.txt",
    "network/interfaces",
    "x.netdev",
    "networkd.conf",
    "x.json",
];

/// Configuration files of every tool, and whether the parsed result can be written.
pub(crate) fn routing_files(input: &[u8]) {
    let Some((&number, text)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(text).into_owned();
    let line_count = u32::try_from(text.lines().count().max(1)).unwrap_or(u32::MAX);
    let path = NAMES[usize::from(number) % NAMES.len()].to_owned();
    let (mut routing, unread) = read::texts(&[Source { path, text }]);
    // A block in YAML may end one line after the last.
    let is_inside =
        |unread: &read::Unread| unread.place.line.is_some_and(|line| line >= 1 && line <= line_count + 1);
    assert!(unread.iter().all(is_inside));
    routing.host = "host".to_owned();
    for format in Format::all() {
        if let Ok(rendered) = routes::host(&routing, format) {
            let paths: Vec<&str> = rendered.files.iter().map(|file| file.path.as_str()).collect();
            assert!(
                paths.iter().all(|path| !path.starts_with('/') && path.split('/').all(|part| part != "..")),
                "{paths:?}"
            );
        }
    }
}

/// Settings files in every format, and the linter's results for them.
pub(crate) fn settings(bytes: &[u8]) {
    let input = &*text_of(bytes);
    let line_count = u32::try_from(input.lines().count()).unwrap_or(u32::MAX);
    let parsed = syntax::parse(input);
    assert!(parsed.statements.iter().all(|made| made.line >= 1 && made.line <= line_count));
    assert!(parsed.slips.iter().all(|slip| slip.line >= 1 && slip.line <= line_count));
    let assumed = Assumed { release: Some("6.12".to_owned()), ..Assumed::default() };
    let state = HostState::of_file("fuzz", input, assumed);
    let report = lint(&state, None, &MuteList::default());
    let log = sarif(&report, "clearstream tune lint");
    assert_eq!(log["runs"][0]["results"].as_array().map(Vec::len), Some(report.findings.len()));
}

/// The document as a file in a folder of its own.
fn as_file(name: &str, bytes: &[u8], read: impl FnOnce(&Path)) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let path = folder.path().join(name);
    if fs::write(&path, bytes).is_ok() {
        read(&path);
    }
}

/// A captured host as a `.tar.gz`.
pub(crate) fn capture(input: &[u8]) {
    as_file("host.tar.gz", input, |path| {
        if let Ok(captured) = clearstream_host::capture::open(path) {
            let _ = captured.list("proc");
            let _ = captured.read("proc/cpuinfo");
        }
    });
}

/// A pairing as a file and as a token.
pub(crate) fn pairing(input: &[u8]) {
    as_file("pairing.json", input, |path| {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
        let _ = clearstream_control::pairing::Pairing::load(path);
    });
}

/// A folder of runs whose documents are the input: the first byte selects which, and the rest are whole.
pub(crate) fn record(input: &[u8]) {
    const RUN: &[u8] = include_bytes!("../corpus/record/run");
    let Some((&choice, document)) = input.split_first() else { return };
    let Ok(runs) = tempfile::tempdir() else { return };
    let folder = runs.path().join("run");
    let name = ["run.json", "trials.jsonl", "check.json"][usize::from(choice) % 3];
    let written = fs::create_dir(&folder)
        .and_then(|()| fs::write(folder.join("run.json"), &RUN[1..]))
        .and_then(|()| fs::write(folder.join(name), document));
    assert!(written.is_ok());
    assert!(clearstream_record::catalogue(runs.path()).is_ok_and(|runs| runs.len() <= 1));
    let Ok(reader) = clearstream_record::Reader::open(&folder) else { return };
    for trial in reader.trials().into_iter().flatten().map_while(Result::ok) {
        if let Ok(samples) = reader.samples::<serde_json::Value>(&trial) {
            let _ = samples.count();
        }
    }
}

/// A plan, and whether its settings are permitted.
pub(crate) fn plan(bytes: &[u8]) {
    let text = &*text_of(bytes);
    let Ok(plan) = clearstream_schema::json::from_str::<Plan>(text) else { return };
    if let Ok(options) = clearstream_plan::Options::live() {
        let _ = clearstream_plan::check_settings(&plan, &options);
    }
    let written = clearstream_schema::json::to_string(&plan).unwrap_or_default();
    assert!(clearstream_schema::json::from_str::<Plan>(&written).is_ok_and(|read| read == plan));
}

/// A journal of a plan.
pub(crate) fn journal(input: &[u8]) {
    as_file("20260101T000000Z.jsonl", input, |path| {
        let folder = path.parent().unwrap_or(path).to_owned();
        let Ok(options) = clearstream_plan::Options::live() else { return };
        let options = clearstream_plan::Options { journals: folder, ..options };
        let _ = clearstream_plan::history(&options);
    });
}

/// A fabric: its hosts have names and addresses.
pub(crate) fn fabric(bytes: &[u8]) {
    let text = &*text_of(bytes);
    let Ok(fabric) = clearstream_route::fabric::parse(Path::new("fabric.toml"), text) else { return };
    for host in fabric.hosts() {
        assert!(!fabric.host_name(host).is_empty());
    }
}

/// A lab.
pub(crate) fn lab(bytes: &[u8]) {
    let text = &*text_of(bytes);
    let _ = clearstream_lab::file::parse(Path::new("lab.toml"), text);
}

/// A study of models, scheduled without a host.
pub(crate) fn study(bytes: &[u8]) {
    let text = &*text_of(bytes);
    let registry = clearstream_workload::Registry::default().with(clearstream_explore::Explore);
    if let Ok(study) = clearstream_study::file::parse(text, "study.toml", &registry) {
        let _ = clearstream_study::schedule(&study, &Default::default(), &[], &registry);
    }
}

/// The file of defaults and the file of hosts.
pub(crate) fn config(input: &[u8]) {
    let Some((&choice, text)) = input.split_first() else { return };
    let kind = |noun, schema| FileKind { noun, schema, version: 1, folder: "", built_in: &[] };
    let document = Document::new("file.toml", String::from_utf8_lossy(text));
    let error = match choice % 2 {
        0 => kind("configuration", CONFIG_SCHEMA).read::<ConfigFile>(&document).err(),
        _ => kind("hosts", HOSTS_SCHEMA).read::<HostsFile>(&document).err(),
    };
    assert!(error.is_none_or(|error| error.to_string().starts_with("file.toml")));
}

/// A model, with the parameter that all of them have.
pub(crate) fn model(bytes: &[u8]) {
    let text = &*text_of(bytes);
    let _ = clearstream_explore::Program::read(text, &[]);
    let _ = clearstream_explore::Program::read(text, &[("n".to_owned(), i64::MIN)]);
}

/// The content of a table: what is accepted closes nothing but itself.
pub(crate) fn nft_table(bytes: &[u8]) {
    let text = &*text_of(bytes);
    let _ = TableText::shown(text);
    if let Ok(table) = text.parse::<TableText>() {
        let written = table.to_string();
        assert_eq!(written.matches('{').count(), written.matches('}').count());
    }
}
