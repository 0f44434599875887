//! `clearstream route render` as a person runs it.

use std::{fs, path::Path};

use crate::common::run;

const FORMATS: [&str; 7] =
    ["networkmanager", "networkd", "netplan", "ifcfg", "nmstate", "ansible", "iproute2"];

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn writes_a_folder_per_host_or_a_play() {
    let parent = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let out = parent.path().join(format);
        let path = out.to_str().unwrap();
        let summary = run(&["route", "render", "gateways-6", "--as", format, "--out", path, "--json"]).json();
        // Six gateways, two storage, eight compute hosts and a login host.
        assert_eq!(summary["host-count"], 17, "{summary:#}");
        if format == "ansible" {
            assert_eq!(entries(&out.join("host_vars")).len(), 17);
            assert_eq!(
                entries(&out.join("group_vars")),
                ["compute.yml", "gateway.yml", "login.yml", "storage.yml"]
            );
        } else {
            assert_eq!(entries(&out).len(), 17);
            assert!(out.join("compute-3/etc/sysctl.d/90-clearstream-routes.conf").is_file());
        }
    }
    // Only the folders that were requested; nothing else is left beside them.
    assert_eq!(entries(parent.path()).len(), FORMATS.len());
    assert!(parent.path().join("networkd/gw3/etc/systemd/network/05-clearstream-compute0.network").is_file());
    assert!(parent.path().join("netplan/gw3/etc/netplan/90-clearstream-routes.yaml").is_file());
}

#[test]
fn only_the_hosts_that_are_requested_and_what_was_written_otherwise() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("two");
    let rendered = run(&[
        "route",
        "render",
        "gateways-6",
        "--as",
        "netplan",
        "--out",
        out.to_str().unwrap(),
        "--host",
        "storage-1",
        "--host",
        "compute-8",
    ]);
    assert_eq!(entries(&out), ["compute-8", "storage-1"]);
    assert!(rendered.ok().contains("for 2 hosts") && rendered.ok().contains("next: "), "{}", rendered.stdout);
    assert!(
        rendered.ok().contains("netplan: nexthop objects") || rendered.ok().contains("netplan: routes with"),
        "{}",
        rendered.stdout
    );
    let out = parent.path().join("class");
    run(&[
        "route",
        "render",
        "gateways-6",
        "--as",
        "iproute2",
        "--out",
        out.to_str().unwrap(),
        "--class",
        "login",
    ])
    .ok();
    assert_eq!(entries(&out), ["login-1"]);
}

#[test]
fn refuses_in_one_line_and_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let full = parent.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "x").unwrap();
    let full = full.to_str().unwrap().to_owned();
    let fresh = parent.path().join("fresh").to_str().unwrap().to_owned();
    let render = |fabric: &str, format: &str, out: &str, more: &[&str]| {
        let mut arguments = vec!["route", "render", fabric, "--as", format, "--out", out];
        arguments.extend(more);
        run(&arguments)
    };
    render("gateways-6", "netplan", &full, &[]).refused(9, &["is not empty", "new or empty"]);
    render("gateways-6", "netplan", &format!("{full}/mine"), &[]).refused(7, &["cannot write"]);
    render("gateways-6", "netplan", "/proc/nothing/out", &[]).refused(7, &["cannot write /proc/nothing/out"]);
    render("gateways-6", "netplan", &fresh, &["--host", "storage-9"]).refused(9, &["storage-9"]);
    render("gateways-6", "netplan", &fresh, &["--class", "tape"]).refused(9, &["tape"]);
    render("no-such-fabric.toml", "netplan", &fresh, &[]).refused(7, &["no-such-fabric.toml"]);
    render("gateways-6", "wicked", &fresh, &[]).refused_by_usage("networkmanager, networkd, netplan");
    assert_eq!(entries(parent.path()), ["full"]);
    assert_eq!(fs::read_to_string(format!("{full}/mine")).unwrap(), "x");
}
