//! Configuration files of every tool, and whether the parsed result can be
//! written.
#![no_main]

use clearstream_netconfig::{
    read::{self, Source},
    routes::{self, Format},
};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 12] = [
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
];

fuzz_target!(|input: (u8, &str)| {
    let (number, text) = input;
    let line_count = u32::try_from(text.lines().count().max(1)).unwrap_or(u32::MAX);
    let path = NAMES[usize::from(number) % NAMES.len()].to_owned();
    let (mut routing, unread) = read::texts(&[Source { path, text: text.to_owned() }]);
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
});
