//! Installing: what `make install` puts where, the packages in a clean root,
//! units that systemd takes, the profiles that the demo and packages are built by.

use std::{collections::BTreeSet, fs, os::unix::net::UnixDatagram, path::Path, time::Duration};

use crate::{
    common::{clearstream, finish, program, run, signal},
    packages::{self, done, files, output_of, root},
};
use clap::CommandFactory as _;
use clearstream::verbs::Cli;

fn make(target: &str, destination: &Path) {
    let variables =
        [format!("DESTDIR={}", destination.display()), format!("PROGRAM={}", program().display())];
    let output = done("make", &["-s", target, &variables[0], &variables[1], "PREFIX=/opt/net"], &[]);
    assert!(output.status.success(), "{}", output_of(&output));
}

/// Names of the manual pages: one per verb that is shown.
fn pages(command: &clap::Command, name: &str, found: &mut BTreeSet<String>) {
    found.insert(format!("{name}.1"));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        pages(below, &format!("{name}-{}", below.get_name()), found);
    }
}

#[test]
fn make_install_puts_everything_in_its_place_and_uninstall_removes_it() {
    let place = tempfile::tempdir().unwrap();
    make("install", place.path());
    let installed = files(place.path());
    for file in [
        "bin/clearstream",
        "share/bash-completion/completions/clearstream",
        "share/zsh/site-functions/_clearstream",
        "share/fish/vendor_completions.d/clearstream.fish",
        "lib/systemd/system/clearstream-serve.service",
        "lib/systemd/system/clearstream-route-watch@.service",
        "lib/sysusers.d/clearstream.conf",
        "share/clearstream/mpi/build",
        "share/doc/clearstream/LICENSE-MIT",
        "share/doc/clearstream/README.md",
        "share/doc/clearstream/docs/guide/install.md",
    ] {
        assert!(installed.contains(&format!("opt/net/{file}")), "{file} is not in {installed:?}");
    }
    let mut expected = BTreeSet::new();
    pages(&Cli::command(), "clearstream", &mut expected);
    let manual = "opt/net/share/man/man1/";
    let found: BTreeSet<String> =
        installed.iter().filter_map(|file| file.strip_prefix(manual).map(str::to_owned)).collect();
    assert_eq!(found, expected);
    for page in &found {
        let text = fs::read_to_string(place.path().join(manual).join(page)).unwrap();
        assert!(text.contains(".TH ") && text.contains(".SH NAME"), "{page}: {text}");
    }
    assert_eq!(fs::read(place.path().join("opt/net/bin/clearstream")).unwrap(), fs::read(program()).unwrap());
    // The shell itself confirms that it completes the command.
    let completions = place.path().join("opt/net/share/bash-completion/completions/clearstream");
    let bash = done("bash", &["-c", &format!(". {} && complete -p clearstream", completions.display())], &[]);
    assert!(bash.status.success() && output_of(&bash).contains("clearstream"), "{}", output_of(&bash));
    // What is not its own stays, and else no folder.
    let site = place.path().join("opt/net/share/doc/clearstream/site");
    fs::write(&site, "").unwrap();
    make("uninstall", place.path());
    assert_eq!(files(place.path()), BTreeSet::from(["opt/net/share/doc/clearstream/site".to_owned()]));
    fs::remove_file(site).unwrap();
    make("uninstall", place.path());
    assert!(!place.path().join("opt/net").exists());
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    heading.chars().filter(|&c| c.is_alphanumeric() || c == '-' || c == '_').collect()
}

#[test]
fn every_link_of_an_installed_page_is_valid_there() {
    let place = tempfile::tempdir().unwrap();
    make("install", place.path());
    let folder = place.path().join("opt/net/share/doc/clearstream").canonicalize().unwrap();
    let mut count = 0;
    for name in files(&folder).iter().filter(|name| name.ends_with(".md")) {
        let page = folder.join(name);
        let text = fs::read_to_string(&page).unwrap();
        // Code is no link, neither blocks nor what a line has.
        let blocks = text.split("\n```").step_by(2);
        let prose = blocks.flat_map(|block| block.split('`').step_by(2)).collect::<Vec<_>>().join(" ");
        for link in prose.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let target = target.canonicalize().unwrap_or_else(|error| panic!("{name}: {link}: {error}"));
            assert!(target.starts_with(&folder), "{name}: {link} leads out of the documentation");
            if !heading.is_empty() {
                let there = fs::read_to_string(&target).unwrap();
                let mut headings = there.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|line| anchor(line) == heading), "{name}: {link}: no such heading");
            }
            count += 1;
        }
    }
    assert!(count > 150, "only {count} links were found");
}

#[test]
fn what_cannot_be_installed_is_one_line() {
    let place = tempfile::tempdir().unwrap();
    let destination = place.path().display().to_string();
    let missing =
        done("packaging/install", &[], &[("DESTDIR", &destination), ("PROGRAM", "/nowhere/clearstream")]);
    assert!(
        !missing.status.success() && output_of(&missing).contains("make static"),
        "{}",
        output_of(&missing)
    );
    let relative = done("packaging/install", &[], &[("DESTDIR", &destination), ("PREFIX", "usr")]);
    assert!(
        !relative.status.success() && output_of(&relative).contains("absolute path"),
        "{}",
        output_of(&relative)
    );
    assert_eq!(files(place.path()), BTreeSet::new(), "nothing half installed");
}

#[test]
fn a_dynamic_program_is_not_taken_for_a_static_one() {
    let output = done("packaging/static", &["--check", &program().display().to_string()], &[]);
    let linked = done("ldd", &[&program().display().to_string()], &[]);
    assert_eq!(
        output.status.success(),
        output_of(&linked).contains("statically linked"),
        "{}",
        output_of(&output)
    );
    assert!(output_of(&output).contains("dynamically linked"), "{}", output_of(&output));
}

/// The commands of docs/guide/install.md, in its order, with the program and the libraries that these tests run.
/// `make accept` does the same with the static program, which takes minutes to build.
#[test]
fn root_packages_are_installed_run_and_removed_as_the_guide_describes() {
    let folder = tempfile::tempdir().unwrap();
    let built = program().parent().unwrap();
    for (name, file) in [
        ("clearstream", "clearstream"),
        ("libclearstream_verbs.so", "libclearstream_verbs.so"),
        ("libclearstream_fi.so", "libclearstream-fi.so"),
        ("clearstream-bpf", "clearstream-bpf"),
    ] {
        fs::copy(built.join(name), folder.path().join(file))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let into = folder.path().display().to_string();
    let of_this_build = [("PROGRAM", format!("{into}/clearstream")), ("LIBRARIES", into.clone())];
    let environment = of_this_build.each_ref().map(|(name, value)| (*name, value.as_str()));
    let made = done("packaging/package", &[&into], &[&environment[..], &[("FAST", "1")]].concat());
    assert!(made.status.success(), "{}", output_of(&made));
    let packages: Vec<String> = files(folder.path())
        .into_iter()
        .filter(|file| file.ends_with(".deb") || file.ends_with(".rpm"))
        .map(|file| format!("{into}/{file}"))
        .collect();
    let arguments: Vec<&str> = ["--dynamic"].into_iter().chain(packages.iter().map(String::as_str)).collect();
    let checked = done("packaging/check", &arguments, &[]);
    let text = output_of(&checked);
    assert!(checked.status.success(), "{text}");
    for sentence in ["measured, libraries loaded, removed without a trace", "needs no other package"] {
        assert!(text.contains(sentence), "{sentence}: {text}");
    }
    packages::are_described(folder.path());
    packages::is_installed_without_a_package(folder.path(), &of_this_build);
}

/// Settings of a unit's section, without what it runs and is called.
fn settings(unit: &str) -> Vec<&str> {
    let kept = |line: &&str| {
        !line.starts_with('#') && !line.starts_with("ExecStart") && !line.starts_with("Description=")
    };
    unit.lines().skip_while(|line| !line.starts_with('[')).filter(kept).collect()
}

#[test]
fn the_packaged_watch_is_confined_as_the_one_that_the_program_prints() {
    let packaged =
        fs::read_to_string(root().join("packaging/systemd/clearstream-route-watch@.service")).unwrap();
    let printed = run(&["route", "watch", "gateways-6", "--unit"]);
    assert_eq!(settings(&packaged), settings(printed.ok()));
}

#[test]
fn systemd_takes_the_units() {
    let place = tempfile::tempdir().unwrap();
    make("install", place.path());
    let folder = place.path().join("opt/net/lib/systemd/system");
    for (file, name) in [
        ("clearstream-serve.service", "clearstream-serve.service"),
        ("clearstream-route-watch@.service", "clearstream-route-watch@campus.service"),
    ] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(text.contains("ExecStart=/opt/net/bin/clearstream "), "{text}");
        // The program where it is now, and a user that this host has.
        let here = text
            .replace("/opt/net/bin/clearstream", &program().display().to_string())
            .replace("User=clearstream", "User=daemon");
        let unit = place.path().join(name);
        fs::write(&unit, here).unwrap();
        let output = done("systemd-analyze", &["verify", "--man=no", &unit.display().to_string()], &[]);
        let text = output_of(&output);
        let about: Vec<&str> = text.lines().filter(|line| line.contains("clearstream")).collect();
        assert!(output.status.success() && about.is_empty(), "{text}");
    }
}

#[test]
fn the_daemon_notifies_systemd_when_it_listens() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let identity = place.path().join("identity").display().to_string();
    let daemon = clearstream(&["serve", "--listen", "127.0.0.1:0", "--identity", &identity])
        .env("NOTIFY_SOCKET", &socket)
        .spawn()
        .unwrap();
    let mut text = [0; 256];
    let notified = manager.recv(&mut text);
    signal(daemon.id(), "TERM");
    let ended = finish(daemon, Duration::from_secs(30));
    let length = notified.unwrap_or_else(|error| panic!("{error}: {}", ended.stderr));
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    assert!(text.starts_with("READY=1\n") && text.contains("STATUS=listening on 127.0.0.1:"), "{text}");
}

#[test]
fn scripts_have_no_slips() {
    let scripts = [
        "packaging/static",
        "packaging/install",
        "packaging/libraries",
        "packaging/package",
        "packaging/check",
        ".ci/install",
        ".ci/demo",
    ];
    let output = done("shellcheck", &[&["-s", "sh"][..], &scripts].concat(), &[]);
    assert!(output.status.success(), "{}", output_of(&output));
}

#[test]
fn the_data_path_is_optimized_fully() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let fast = manifest["profile"]["release"]["package"].as_table().unwrap();
    assert!(fast.values().all(|one| one["opt-level"].as_integer() == Some(3)));
    // Every engine that opens sockets or moves bytes, what it links, and the libraries below programs of others.
    let engines = ["flow", "iwarp", "lab", "messages", "probe", "rdma", "storage", "sys"];
    for name in engines.into_iter().chain(["libfabric", "verbs"]) {
        assert!(fast.contains_key(&format!("clearstream-{name}")), "{name}");
    }
    assert!(fast.contains_key("ring") && fast.contains_key("crc-fast"));
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for name in fast.keys() {
        assert!(lock.contains(&format!("name = \"{name}\"\n")), "{name} is no package");
    }
}

#[test]
fn the_guide_names_packages_manual_and_completions() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let guide = read("docs/guide/install.md");
    for expected in
        ["make install", "make package", "make static", "man clearstream", "completions bash", "systemctl"]
    {
        assert!(guide.contains(expected), "{expected}");
    }
    assert!(read("README.md").contains("docs/guide/install.md"));
}
