//! What is rendered, loaded by the tools it is for. Those that need a network
//! run in a namespace of their own, with their own `/etc` and `/run`.

use crate::tools::daemons;
use crate::tools::plans;
use crate::tools::private;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::tools::compare::{bare, difference, plain};
use crate::tools::plans::{without_order, without_owners};
use clearstream_netconfig::{
    read::{self, Source},
    routes::{self, Content, FolderWriter, Format, Rendered},
};
use clearstream_route::{fabric, planner::Planner};
use clearstream_schema::routing::HostRouting;

fn format(name: &str) -> Format {
    name.parse().unwrap()
}

/// Writes the files of a host below a folder.
fn install(rendered: &Rendered, root: &Path) {
    for file in &rendered.files {
        let path = root.join(&file.path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match &file.content {
            Content::Text { text, mode } => {
                use std::os::unix::fs::PermissionsExt;
                fs::write(&path, text).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Content::Link { target } => std::os::unix::fs::symlink(target, &path).unwrap(),
        }
    }
}

fn read_texts(sources: Vec<(String, String)>) -> HostRouting {
    let sources: Vec<Source> = sources.into_iter().map(|(path, text)| Source { path, text }).collect();
    let (routing, unread) = read::texts(&sources);
    assert_eq!(unread, []);
    routing
}

fn text_of<'a>(rendered: &'a Rendered, suffix: &str) -> Option<&'a str> {
    let file = rendered.files.iter().find(|file| file.path.ends_with(suffix))?;
    match &file.content {
        Content::Text { text, .. } => Some(text),
        Content::Link { .. } => None,
    }
}

/// NetworkManager's client: of the system, or the one that `.ci/install` put
/// beside the build because the package would start a daemon.
fn nmcli() -> Command {
    let beside =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/network-manager/usr/bin/nmcli");
    let mut command = Command::new(if beside.is_file() { beside } else { PathBuf::from("nmcli") });
    command.env("LC_ALL", "C");
    command
}

/// NetworkManager reads a keyfile as a profile and writes what it understood:
/// a rule or route that it rejects is missing then.
#[test]
fn networkmanager_keeps_every_key_of_a_profile() {
    for (_, plan) in plans::all() {
        let rendered = routes::host(&plan, format("networkmanager")).unwrap();
        for file in rendered.files.iter().filter(|file| file.path.ends_with(".nmconnection")) {
            let Content::Text { text, mode } = &file.content else { panic!("{}", file.path) };
            assert_eq!(*mode, 0o600, "NetworkManager ignores profiles that others may read");
            let mut child = nmcli()
                .args(["--offline", "connection", "modify", "connection.autoconnect", "yes"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("nmcli: run .ci/install test");
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && stderr.is_empty(), "{stderr}");
            let understood = String::from_utf8(output.stdout).unwrap();
            let theirs = read_texts(vec![("their.nmconnection".to_owned(), understood)]);
            let ours = read_texts(vec![("our.nmconnection".to_owned(), text.clone())]);
            assert_eq!(difference(&bare(&theirs), &bare(&ours)), [""; 0], "{}", plan.host);
        }
    }
}

/// Netplan turns its file into those of networkd; both read as the same.
#[test]
fn netplan_makes_the_same_of_it() {
    for (_, plan) in plans::different() {
        let rendered = routes::host(&plan, format("netplan")).unwrap();
        let root = tempfile::tempdir().unwrap();
        install(&rendered, root.path());
        let output = Command::new("netplan")
            .args(["generate", "--root-dir"])
            .arg(root.path())
            .output()
            .expect("netplan: run .ci/install test");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.is_empty(), "{stderr}");
        let made = fs::read_dir(root.path().join("run/systemd/network")).unwrap();
        let sources = made
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "network"))
            .map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap()))
            .collect();
        let yaml = text_of(&rendered, ".yaml").unwrap().to_owned();
        let ours = read_texts(vec![("our.yaml".to_owned(), yaml)]);
        assert_eq!(difference(&bare(&read_texts(sources)), &bare(&ours)), [""; 0], "{}", plan.host);
    }
}

/// Nmstate's own library takes the state and makes profiles of it, which read as
/// the same.
#[test]
fn nmstate_makes_the_same_of_it() {
    for (_, plan) in plans::all() {
        let rendered = routes::host(&plan, format("nmstate")).unwrap();
        let yaml = text_of(&rendered, "clearstream-routes.yml").unwrap();
        let state = nmstate::NetworkState::new_from_yaml(yaml).unwrap();
        let made = state.gen_conf().unwrap();
        // Blackhole routes go to a profile of the loopback interface.
        let sources = made["NetworkManager"]
            .iter()
            .map(|(name, text)| (format!("{name}.nmconnection"), text.clone()))
            .collect();
        let ours = read_texts(vec![("our.yml".to_owned(), yaml.to_owned())]);
        let mut theirs = read_texts(sources);
        theirs.interfaces.retain(|known| known.name != "lo");
        let (theirs, ours) = [theirs, ours].map(|state| without_order(bare(&state))).into();
        assert_eq!(difference(&theirs, &ours), [""; 0], "{}", plan.host);
    }
}

#[test]
fn systemd_takes_the_unit() {
    let plan = plans::all().remove(0).1;
    let rendered = routes::host(&plan, format("iproute2")).unwrap();
    let root = tempfile::tempdir().unwrap();
    install(&rendered, root.path());
    let unit = root.path().join("etc/systemd/system/clearstream-routes.service");
    // The unit names the programs by their paths in the temporary folder.
    let text = fs::read_to_string(&unit).unwrap();
    let here = root.path().join("etc/clearstream").display().to_string();
    fs::write(&unit, text.replace("/etc/clearstream", &here)).unwrap();
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let of_unit: Vec<&str> = stderr.lines().filter(|line| line.contains("clearstream-routes")).collect();
    assert!(output.status.success() && of_unit.is_empty(), "{stderr}");
}

#[test]
fn shellcheck_finds_nothing() {
    let plan = plans::all().remove(0).1;
    let root = tempfile::tempdir().unwrap();
    install(&routes::host(&plan, format("networkd")).unwrap(), root.path());
    install(&routes::host(&plan, format("networkmanager")).unwrap(), root.path());
    let scripts = [
        "etc/clearstream/routes/apply",
        "etc/clearstream/routes/remove",
        "etc/NetworkManager/dispatcher.d/50-clearstream-routes",
    ];
    for script in scripts {
        let output = Command::new("shellcheck").arg(root.path().join(script)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// The batches in a namespace: in effect after one run and the same after two,
/// and gone after `remove`.
#[test]
fn root_batches_are_in_effect_and_may_be_repeated() {
    for (number, (what, plan)) in (0..).zip(plans::different()) {
        let root = tempfile::tempdir().unwrap();
        install(&routes::host(&plan, format("iproute2")).unwrap(), root.path());
        let folder = root.path().join("etc/clearstream/routes");
        // The first waits for its IPv6 addresses, as a host does that starts.
        let quick = if number == 0 { "" } else { daemons::QUICK };
        let script = format!(
            "{quick}{links}{show}{folder}/apply\n{show}{folder}/apply\n{show}\
             sysctl -n net.ipv4.fib_multipath_hash_policy\n\
             ! [ -e {folder}/marks.nft ] || nft list ruleset | grep -c 'ct state new ether saddr' >&2\n\
             {folder}/remove\n{show}",
            links = daemons::links(&plan),
            show = private::SHOW,
            folder = folder.display(),
        );
        let output = private::run(&script);
        let states = private::states(&output.stdout);
        assert_eq!(states.len(), 4, "{what}: {}", output.stderr);
        assert_eq!(difference(&plain(&states[1]), &plain(&plan)), [""; 0], "{what}: {}", output.stderr);
        assert_eq!(difference(&plain(&states[2]), &plain(&plan)), [""; 0], "{what}, repeated");
        // Addresses stay, so that nobody is cut off.
        let gone = HostRouting { interfaces: states[2].interfaces.clone(), ..HostRouting::default() };
        assert_eq!(difference(&plain(&states[3]), &plain(&gone)), [""; 0], "{what}, removed");
        if !plan.connection_marks.is_empty() {
            assert_eq!(output.stderr.trim(), plan.connection_marks.len().to_string());
        }
    }
}

/// Rules of an older plan are replaced by those of the new one.
#[test]
fn root_batches_replace_rules_of_another_plan() {
    let plan = plans::with_rules();
    let root = tempfile::tempdir().unwrap();
    install(&routes::host(&plan, format("iproute2")).unwrap(), root.path());
    let owner = plan.rules[0].protocol;
    let script = format!(
        "{links}ip rule add from 192.0.2.1 table 9 priority 9 protocol {owner}\n\
         ip rule add from 192.0.2.2 table 9 priority 10\n{apply}\n{show}",
        links = daemons::links(&plan),
        apply = root.path().join("etc/clearstream/routes/apply").display(),
        show = private::SHOW,
    );
    let output = private::run(&script);
    let state = private::states(&output.stdout).remove(0);
    let foreign = |known: &&clearstream_schema::routing::RuleEntry| known.protocol != owner;
    assert_eq!(state.rules.iter().filter(foreign).count(), 1, "others' rules stay");
    let own = HostRouting {
        rules: state.rules.iter().filter(|rule| !foreign(rule)).cloned().collect(),
        ..plan.clone()
    };
    assert_eq!(difference(&plain(&own), &plain(&plan)), [""; 0]);
}

/// systemd-networkd with nothing but a namespace, a private `/run` and no udev.
#[test]
fn root_networkd_puts_it_in_effect() {
    for (what, plan) in plans::different().into_iter().filter(|(what, _)| what.contains("storage")) {
        let root = tempfile::tempdir().unwrap();
        let rendered = routes::host(&plan, format("networkd")).unwrap();
        install(&rendered, root.path());
        let has_batches = text_of(&rendered, "routes.batch").is_some();
        let script = daemons::networkd(&plan, root.path(), has_batches);
        let output = private::run(&script);
        let states = private::states(&output.stdout);
        let last = states.last().unwrap_or_else(|| panic!("{what}: {}", output.stderr));
        // Networkd knows no owner of rules and nexthops.
        let (theirs, ours) = [last, &plan].map(|state| without_order(without_owners(plain(state)))).into();
        assert_eq!(difference(&theirs, &ours), [""; 0], "{what}: {}", output.stderr);
    }
}

/// A play of Ansible: its syntax, then twice on this machine in a namespace.
#[test]
fn root_ansible_installs_and_changes_nothing_the_second_time() {
    let (_, plan) = plans::all().into_iter().find(|(what, _)| what.contains("mark")).unwrap();
    let root = tempfile::tempdir().unwrap();
    let play = root.path().join("play");
    let mut writer = FolderWriter::create(&play, format("ansible")).unwrap();
    writer
        .add(std::slice::from_ref(&plan), &|plan: &HostRouting| ("storage".to_owned(), plan.clone()))
        .unwrap();
    writer.finish().unwrap();
    let check = Command::new("ansible-playbook")
        .args(["--syntax-check", "-i", "inventory.yml", "site.yml"])
        .current_dir(&play)
        .output()
        .expect("ansible-playbook: run .ci/install test");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let output = private::run(&daemons::ansible(&plan, root.path(), &play));
    let states = private::states(&output.stdout);
    let last = states.last().unwrap_or_else(|| panic!("{}\n{}", output.stdout, output.stderr));
    assert_eq!(difference(&plain(last), &plain(&plan)), [""; 0], "{}{}", output.stdout, output.stderr);
    let recaps: Vec<&str> = output.stdout.lines().filter(|line| line.contains("changed=")).collect();
    assert_eq!(recaps.len(), 2, "{}", output.stdout);
    assert!(!recaps[0].contains("changed=0") && recaps[1].contains("changed=0"), "{recaps:?}");
    assert!(recaps.iter().all(|recap| recap.contains("failed=0")), "{recaps:?}");
}

/// Lines of the network scripts are arguments of `ip route add` and `ip rule
/// add`; the scripts hand them to it line by line.
#[test]
fn root_ip_takes_the_lines_of_the_network_scripts() {
    for (what, plan) in plans::different() {
        let rendered = routes::host(&plan, format("ifcfg")).unwrap();
        let mut script = daemons::QUICK.to_owned() + &daemons::links(&plan);
        for known in &plan.interfaces {
            for address in &known.addresses {
                script.push_str(&format!("ip address add {} dev {}\n", address.value, known.name));
            }
        }
        for file in &rendered.files {
            let name = file.path.rsplit('/').next().unwrap();
            let Content::Text { text, .. } = &file.content else { continue };
            let command = match name.split('-').next().unwrap() {
                "route" => "ip -4 route add",
                "route6" => "ip -6 route add",
                "rule" => "ip -4 rule add",
                "rule6" => "ip -6 rule add",
                _ => continue,
            };
            text.lines().for_each(|line| script.push_str(&format!("{command} {line}\n")));
        }
        // What the scripts cannot express is in the batches.
        let root = tempfile::tempdir().unwrap();
        install(&rendered, root.path());
        if text_of(&rendered, "routes/apply").is_some() {
            script.push_str(&format!("{}/etc/clearstream/routes/apply\n", root.path().display()));
        }
        script.push_str(private::SHOW);
        let output = private::run(&script);
        let state = private::states(&output.stdout).remove(0);
        assert_eq!(difference(&plain(&state), &plain(&plan)), [""; 0], "{what}: {}", output.stderr);
    }
}

#[test]
fn plans_of_these_tests_hold_every_kind() {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, plan) in plans::all() {
        *kinds.entry("rules").or_default() += plan.rules.len();
        *kinds.entry("nexthops").or_default() += plan.nexthops.len();
        *kinds.entry("marks").or_default() += plan.connection_marks.len();
        *kinds.entry("routes").or_default() += plan.routes.len();
    }
    assert!(kinds.values().all(|count| *count > 0), "{kinds:?}");
}

/// Every host of every fabric that comes along (of large ones the first of
/// each class) can be written in every format.
#[test]
fn built_in_fabrics_can_be_written() {
    for name in fabric::built_in_names() {
        let fabric = fabric::load(name).unwrap();
        let planner = Planner::new(&fabric);
        for class in 0..fabric.file().classes.len() {
            let plan = planner.routing(fabric.class_hosts(class).next().unwrap());
            for format in Format::all().filter(|format| !format.is_play()) {
                let rendered = routes::host(&plan, format).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(!rendered.files.is_empty(), "{name} {}", plan.host);
            }
        }
    }
}
