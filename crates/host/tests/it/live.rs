//! The running machine: the report compared with other tools, and with a capture of the machine.

use std::{collections::BTreeSet, fs, io::Read, path::Path, process::Command, thread, time::Duration};

use clearstream_host::{
    HostRoot,
    capture::{self, AddressKey, Addresses, CaptureOptions},
    inspect,
};
use clearstream_schema::{
    host::HostReport,
    routing::{HostRouting, RouteAction},
};
use serde_json::Value;

fn tool_output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn agrees_with_hwloc_about_this_machine() {
    let report = inspect(&HostRoot::live());
    let count = |kind: &str| {
        let only = tool_output("lstopo-no-graphics", &["--only", kind]);
        only.expect("this test compares with hwloc: apt-get install hwloc").lines().count()
    };
    assert_eq!(report.processing_units.iter().filter(|unit| unit.online).count(), count("pu"));
    let cores: BTreeSet<_> = report.processing_units.iter().map(|unit| &unit.siblings).collect();
    assert_eq!(cores.len(), count("core"));
    assert_eq!(report.packages.len(), count("package"));
    assert_eq!(report.nodes.len(), count("numanode"));
    let names: BTreeSet<_> = report.nics.iter().map(|nic| nic.name.as_str()).collect();
    assert!(names.contains("lo"), "{names:?}");
    assert_eq!(report.kernel.release.as_deref(), tool_output("uname", &["-r"]).as_deref().map(str::trim));
    assert_eq!(report.kernel.page_bytes.to_string(), tool_output("getconf", &["PAGE_SIZE"]).unwrap().trim());
    let cmm = tool_output("sysctl", &["-n", "net.ipv4.tcp_congestion_control"]).unwrap_or_default();
    assert!(cmm.is_empty() || report.kernel.congestion_control.as_deref() == Some(cmm.trim()));
}

/// Removes what differs between two reports of one machine: counts, free memory, and interfaces that other
/// tests create and remove.
fn stable_part(mut report: HostReport) -> HostReport {
    for node in &mut report.nodes {
        node.free_bytes = 0;
    }
    for interrupt in &mut report.interrupts {
        interrupt.counts.clear();
        // irqbalance and the kernel move vectors.
        interrupt.effective_cores.clear();
    }
    report.nics.retain(|nic| nic.driver.is_some() || nic.name == "lo");
    report.missing.retain(|missing| !missing.part.starts_with("nic "));
    report
}

const KEEP_NAME: CaptureOptions = CaptureOptions { keep_host_name: true, addresses: Addresses::Replaced };

/// Compares two snapshots of one machine, taken in sequence. Other tests and the kernel change it in between:
/// congestion controls made of BPF programs and devices appear and vanish, vectors move. A defect shows in
/// every pair of snapshots, a change of the machine only in those around it.
fn equal_in_one_of<T: serde::Serialize>(mut snapshots: impl FnMut() -> (T, T)) {
    let mut differences = BTreeSet::new();
    for pause in [0, 50, 100, 200, 400, 800, 1600, 3200] {
        thread::sleep(Duration::from_millis(pause));
        let (one, other) = snapshots();
        let (one, other) = (serde_json::to_value(one).unwrap(), serde_json::to_value(other).unwrap());
        if one == other {
            return;
        }
        note_differences("", &one, &other, &mut differences);
    }
    panic!("never equal: {differences:#?}");
}

/// Collects the places in which two documents differ, with both values.
fn note_differences(place: &str, one: &Value, other: &Value, into: &mut BTreeSet<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
                let at = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                note_differences(&format!("{place}/{key}"), &at(one), &at(other), into);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                note_differences(&format!("{place}/{index}"), one, other, into);
            }
        }
        _ if one == other => {}
        _ => {
            into.insert(format!("{place}: {one} and {other}"));
        }
    }
}

fn captured(options: CaptureOptions) -> (Vec<u8>, HostReport) {
    let mut bundle = Vec::new();
    let report = capture::write_with(&HostRoot::live(), &mut bundle, options).unwrap();
    (bundle, report)
}

#[test]
fn a_captured_host_gives_the_report_of_the_live_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.tar.gz");
    // The report made from the same reads is equal to the last count.
    equal_in_one_of(|| {
        let (bundle, recorded) = captured(KEEP_NAME);
        fs::write(&path, &bundle).unwrap();
        (inspect(&capture::open(&path).unwrap()), recorded)
    });
    let opened = capture::open(&path).unwrap();
    let recorded = inspect(&opened);
    let bundle_path = folder.path().join("bundle.tar.gz");
    equal_in_one_of(|| {
        let mut bundle = Vec::new();
        capture::write_with(&HostRoot::live(), &mut bundle, KEEP_NAME).unwrap();
        fs::write(&bundle_path, &bundle).unwrap();
        let opened = capture::open(&bundle_path).unwrap();
        (stable_part(inspect(&opened)), stable_part(inspect(&HostRoot::live())))
    });
    let counters = clearstream_host::counters::read(&opened);
    assert!(counters.missing.is_empty(), "{:?}", counters.missing);
    assert_eq!(tool_output("uname", &["-n"]).unwrap().trim(), recorded.name);
    // A capture of the captured host describes the same host.
    let mut recaptured = Vec::new();
    capture::write_with(&opened, &mut recaptured, KEEP_NAME).unwrap();
    fs::write(&path, &recaptured).unwrap();
    assert_eq!(inspect(&capture::open(&path).unwrap()), recorded);
}

/// All text of the bundle, paths and link targets included.
fn unpacked(bundle: &[u8]) -> String {
    let mut text = String::new();
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bundle));
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        text += &format!("{} {:?}\n", entry.path().unwrap().display(), entry.link_name().unwrap());
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        text += &String::from_utf8_lossy(&bytes);
    }
    text
}

#[test]
fn a_bundle_names_neither_the_host_nor_its_addresses() {
    let bundle = captured(CaptureOptions::default()).0;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("host.tar.gz"), &bundle).unwrap();
    assert_eq!(inspect(&capture::open(&folder.path().join("host.tar.gz")).unwrap()).name, "captured");
    let text = unpacked(&bundle);
    assert!(text.contains("ethtool.json") && text.contains("proc/interrupts"));
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    // A name as short as `vm` is part of many strings.
    assert!(name.trim().len() < 6 || !text.contains(name.trim()));
    for entry in fs::read_dir("/sys/class/net").unwrap().flatten() {
        let mac = fs::read_to_string(entry.path().join("address")).unwrap_or_default();
        assert!(
            mac.trim() == "00:00:00:00:00:00" || mac.trim().is_empty() || !text.contains(mac.trim()),
            "{mac}"
        );
    }
    let addresses = tool_output("ip", &["-o", "addr"]).unwrap_or_default();
    for address in addresses.split_whitespace().filter(|field| field.contains('/')) {
        let address = address.split('/').next().unwrap();
        assert!(address == "::1" || !text.contains(address), "{address}");
    }
}

#[test]
fn reports_why_a_file_is_no_capture() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let refusal = |path: &Path| capture::open(path).unwrap_err().to_string();
    let (bundle, _) = captured(CaptureOptions::default());
    let cut = write("cut.tar.gz", &bundle[..bundle.len() / 2]);
    assert!(refusal(&cut).contains("no readable .tar.gz"), "{}", refusal(&cut));
    let text = write("text", b"not a bundle");
    assert!(refusal(&text).contains("no readable .tar.gz"), "{}", refusal(&text));
    let nowhere = folder.path().join("nowhere.tar.gz");
    assert!(refusal(&nowhere).contains("cannot read the capture"), "{}", refusal(&nowhere));
    assert!(refusal(folder.path()).contains("neither proc nor sys"));

    fs::create_dir(folder.path().join("proc")).unwrap();
    write(
        "manifest.json",
        br#"{"schema":"clearstream.host-capture","version":9,"program":"x","host_name_kept":false}"#,
    );
    assert!(refusal(folder.path()).contains("use a newer clearstream"));
    write("manifest.json", b"{");
    assert!(refusal(folder.path()).contains("manifest.json"));
}

/// Routes of this machine (there may be none in a container) are unchanged where addresses are kept, and
/// equal in number where they are replaced.
#[test]
fn a_bundle_contains_the_routing_state() {
    let read = |options: CaptureOptions| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.tar.gz");
        fs::write(&path, captured(options).0).unwrap();
        let opened = capture::open(&path).unwrap();
        assert!(opened.read("proc/sys/net/ipv4/conf/all/rp_filter").is_ok());
        opened.routing().unwrap()
    };
    let live = || HostRoot::live().routing().unwrap();
    equal_in_one_of(|| {
        let kept = read(CaptureOptions { addresses: Addresses::Kept, ..CaptureOptions::default() });
        let live = live();
        ((kept.routes, kept.rules), (live.routes, live.rules))
    });
    let key = AddressKey::of_phrase("together");
    let keyed = CaptureOptions { addresses: Addresses::Keyed(key), ..CaptureOptions::default() };
    equal_in_one_of(|| (read(keyed).routes, read(keyed).routes));
    let counted = |routing: HostRouting| routing.routes.len();
    equal_in_one_of(|| (counted(read(keyed)), counted(live())));
    // A gateway that was a neighbour is still one.
    let gateways = |routing: &HostRouting| {
        let networks: Vec<_> =
            routing.interfaces.iter().flat_map(|it| &it.addresses).map(|it| it.value.network()).collect();
        let hops = routing.routes.iter().filter_map(|route| match &route.action {
            RouteAction::Gateways(hops) => Some(hops.clone()),
            _ => None,
        });
        hops.flatten().map(|hop| networks.iter().any(|it| it.contains(hop.via))).collect::<Vec<_>>()
    };
    equal_in_one_of(|| (gateways(&read(keyed)), gateways(&live())));
}

/// A bundle made to write or read outside itself: nothing is unpacked, and its links cannot escape.
#[test]
fn a_hostile_bundle_cannot_escape() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("secret"), "secret").unwrap();
    let path = folder.path().join("hostile.tar.gz");
    let file = fs::File::create(&path).unwrap();
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(file, Default::default()));
    let header = |kind, name: &[u8], size: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_size(size);
        header.set_cksum();
        header
    };
    let regular = tar::EntryType::Regular;
    tar.append(&header(regular, b"proc/../../escaped", 1), b"x".as_slice()).unwrap();
    tar.append_link(&mut header(tar::EntryType::Symlink, b"", 0), "sys", folder.path()).unwrap();
    tar.append(&header(regular, b"sys/escaped", 1), b"x".as_slice()).unwrap();
    tar.append(&header(regular, b"proc/uptime", 1), b"1".as_slice()).unwrap();
    tar.append(&header(tar::EntryType::Fifo, b"proc/pipe", 0), b"".as_slice()).unwrap();
    tar.into_inner().unwrap().finish().unwrap();
    let opened = capture::open(&path).unwrap();
    assert_eq!(opened.read("proc/uptime").unwrap(), "1");
    assert!(opened.read("sys/secret").is_err() && opened.read("../secret").is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    assert!(!opened.exists("proc/pipe"));
}
