//! What comes from outside does no harm: logs that are gone, disks that are
//! full, files without an end, text that a terminal would obey, agents that
//! stand still. And each of them ends with the documented exit code.

use crate::common;
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::common::{Lab, children, clearstream, finish, program, run, signal, until_line};
use clearstream_testkit::lab::two_hosts;

/// Longest that a run here may take.
const LIMIT: Duration = Duration::from_secs(60);

/// `command` by the shell, with `$CS` as the program and `$DIR` as the folder.
fn shell(folder: &Path, script: &str) -> common::Run {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("CS", program()).env("DIR", folder);
    finish(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), LIMIT)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A daemon of a test with one pairing.
struct Daemon {
    child: Child,
    address: String,
    pairing: String,
}

impl Daemon {
    fn start(folder: &Path, log: Stdio) -> Self {
        let identity = folder.join("identity");
        let mut child = clearstream(&["serve", "--listen", "127.0.0.1:0", "--identity", text(&identity)])
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address: SocketAddr = line
            .strip_prefix("listening on ")
            .and_then(|rest| rest.split(';').next())
            .unwrap()
            .parse()
            .unwrap();
        let pairing = folder.join("pairing.json");
        let (identity, address) = (text(&identity).to_owned(), address.to_string());
        let token = run(&["pair", "create", "tester", "--identity", &identity, "--address", &address]);
        let token_file = folder.join("token");
        fs::write(&token_file, token.ok()).unwrap();
        shell(folder, &format!("$CS pair accept {} < {}", pairing.display(), token_file.display())).ok();
        Self { child, address, pairing: text(&pairing).to_owned() }
    }

    fn probe(&self) -> common::Run {
        run(&["probe", &self.address, "--pairing", &self.pairing, "--count", "2", "--json"])
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn controllers_are_served_when_nobody_can_take_the_log() {
    // A pipe whose reader has gone, and a full disk.
    for full in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let log = if full {
            fs::File::options().write(true).open("/dev/full").unwrap().into()
        } else {
            Stdio::piped()
        };
        let mut daemon = Daemon::start(folder.path(), log);
        drop(daemon.child.stderr.take());
        for _ in 0..2 {
            daemon.probe().ok();
        }
        signal(daemon.child.id(), "HUP");
        let status = daemon.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "a hangup stops a daemon as TERM does");
    }
}

/// A pipe that is full and never read: a terminal that was stopped with Ctrl-S, a
/// logger that hangs.
#[test]
fn controllers_are_served_when_nobody_reads_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (_reader, log) = common::full_pipe();
    let mut daemon = Daemon::start(folder.path(), log);
    for _ in 0..200 {
        let mut stranger = TcpStream::connect(&daemon.address).unwrap();
        // It may have been hung up on already.
        let _ = stranger.write_all(b"GET / HTTP/1.0\r\n\r\n");
    }
    for _ in 0..2 {
        daemon.probe().ok();
    }
    signal(daemon.child.id(), "TERM");
    common::eventually(LIMIT, "the daemon ends", || daemon.child.try_wait().unwrap().is_some());
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
}

/// What standard input has no end of; files are those of `hostile_documents`.
#[test]
fn inputs_without_an_end_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // What reads on and on fails here by its memory, and not the machine.
    shell(folder.path(), "ulimit -v 4000000; exec $CS pair accept $DIR/pairing < /dev/zero").refused_with(2);
}

#[test]
fn nothing_that_a_terminal_obeys_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let host = folder.path().join("host");
    // Clears the screen, sets the title, moves back (C0, C1), reverses text.
    let hostile = "x\x1b[2J\x1b]0;title\x07\r\u{9b}31m\u{202e}y";
    for (path, contents) in [
        ("proc/sys/kernel/osrelease", format!("6.1.0-{hostile}\n")),
        ("proc/sys/kernel/hostname", format!("{hostile}\n")),
        ("proc/cpuinfo", format!("processor\t: 0\nmodel name\t: {hostile}\n\n")),
        ("proc/version", format!("Linux version 6.1 {hostile}\n")),
        ("proc/cmdline", format!("{hostile}\n")),
        ("sys/devices/system/cpu/online", "0\n".to_owned()),
        ("sys/devices/system/cpu/present", "0\n".to_owned()),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", format!("{hostile}\n")),
    ] {
        let path = host.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    let study = folder.path().join("study.toml");
    fs::write(&study, "title = \"\\u001b[2J\"\n\"ke\\u009by\" = 1\n").unwrap();
    let plan = folder.path().join("plan.json");
    fs::write(&plan, r#"{"schema": "\u001b[2J", "\u009b": 1}"#).unwrap();
    let lab = folder.path().join("lab.toml");
    fs::write(&lab, "schema = \"\\u001b[31m\"\nversion = 1\nname = \"\\u202e\"\n").unwrap();
    let mut shown = false;
    for arguments in [
        vec!["inspect", "--from", text(&host)],
        vec!["inspect", "--from", text(&host), "--json"],
        vec!["tune", "lint", "--from", text(&host)],
        vec!["study", "run", text(&study), "--to", "localhost"],
        vec!["plan", "verify", text(&plan)],
        vec!["lab", "up", text(&lab)],
        vec!["lab", "up", "./\x1b[2J\u{9b}.toml"],
        vec!["flow", "\x1b]0;evil\x07.invalid", "--pairing", "/nonexistent"],
        vec!["report", "/nonexistent/\x1b[2J"],
    ] {
        let run = run(&arguments);
        for output in [&run.stdout, &run.stderr] {
            assert_eq!(raw(output), None, "{arguments:?}: {output:?}");
            shown |= output.contains("\\u{1b}");
        }
    }
    assert!(shown, "it is made visible");
}

/// The first character that a terminal obeys, or that reorders text.
fn raw(output: &str) -> Option<char> {
    output.chars().find(|c| (c.is_control() && !"\n\t".contains(*c)) || *c == '\u{202e}')
}

/// A record from elsewhere, whose study and hosts have titles and names that a
/// terminal would obey.
#[test]
fn nothing_that_a_terminal_obeys_is_printed_of_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("run");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records/clearstream-40ge");
    fs::create_dir_all(record.join("samples")).unwrap();
    let hostile = |name: &str| format!("{name}\\u001b[2J\\u001b]0;title\\u0007\\u009b31m\\u202e");
    let copy = |name: &Path| {
        let mut text = fs::read_to_string(source.join(name)).unwrap();
        for name in [
            "geneva",
            "amsterdam",
            "-20260301",
            "local-throughput",
            "40 Gb/s Ethernet between two servers",
            "these figures are made up",
        ] {
            text = text.replace(name, &hostile(name));
        }
        // Titles of experiments are beside names, which stay.
        text = text.replace("\"title\": \"", &format!("\"title\": \"{}", hostile("")));
        fs::write(record.join(name), text).unwrap();
    };
    ["run.json", "trials.jsonl"].iter().for_each(|name| copy(Path::new(name)));
    for entry in fs::read_dir(source.join("samples")).unwrap().flatten() {
        copy(&Path::new("samples").join(entry.file_name()));
    }
    let record = text(&record);
    for arguments in [
        vec!["diagnose", "--from", record],
        vec!["diagnose", "--from", record, "--json"],
        vec!["report", record, "--format", "markdown", "--out", "-"],
        vec!["report", record, "--format", "csv", "--out", "-"],
        vec!["report", record],
        vec!["study", "compare", record, "flows=1", "flows=2"],
        vec!["study", "compare", record, record],
        vec!["study", "compare", record, record, "--json"],
    ] {
        let run = run(&arguments);
        run.ok();
        for output in [&run.stdout, &run.stderr] {
            assert_eq!(raw(output), None, "{arguments:?}: {output:?}");
            assert!(!output.contains("\\u{d}"), "line ends of a table are none: {output:?}");
        }
        let is_shown = ["\\u{1b}[2J", "\\u001b[2J", "\u{fffd}"].iter().any(|it| run.stdout.contains(it));
        // Only the name of a file is printed.
        let is_named = arguments == ["report", record];
        assert!(is_shown || is_named, "{arguments:?}: made visible: {}", run.stdout);
    }
}

#[test]
fn options_without_effect_are_refused() {
    for (arguments, expected) in [
        (vec!["flow", "localhost", "--pairing", "/nonexistent"], "--pairing"),
        (vec!["probe", "localhost", "--ssh-option", "Port=22"], "--ssh-option"),
        (vec!["flow", "--lab", "two-hosts", "--remote-program", "/bin/cs"], "--remote-program"),
        (vec!["flow", "localhost", "--datagram", "1400"], "datagram"),
        (vec!["flow", "localhost", "--pacing", "0b/s"], "pacing"),
        (vec!["flow", "localhost", "--pacing", "7b/s"], "pacing"),
        (vec!["flow", "localhost", "-P", "2", "--source-ports", "40000,40000"], "40000 twice"),
        (vec!["flow", "localhost", "--protocol", "udp", "--receive-low-water", "4096"], "low-water"),
        (vec!["message", "localhost", "--kind", "ping-pong", "--window", "8"], "--window"),
        // Beside each other they are taken, until the check of what comes after them.
        (
            "flow localhost --force-buffers --window 1MiB --send-buffer 1MiB --pacing 0b/s"
                .split(' ')
                .collect(),
            "pacing",
        ),
        (
            "flow localhost --burst-flows 1 --burst-on 1ms --burst-off 1ms --pacing 0b/s"
                .split(' ')
                .collect(),
            "pacing",
        ),
    ] {
        run(&arguments).refused(2, &[expected]);
    }
    for (line, expected) in [
        ("flow localhost --burst-on 1ms", "--burst-flows"),
        ("flow localhost --burst-off 1ms", "--burst-flows"),
        ("flow localhost --force-buffers", "--window"),
        ("flow localhost --source-port 40000 --source-ports 40001", "--source-port"),
        ("diagnose localhost --trial 3", "--trial"),
        ("diagnose --lab two-hosts --trial 3", "--trial"),
        ("diagnose --trial 3", "--from"),
    ] {
        run(&line.split(' ').collect::<Vec<_>>()).refused_by_usage(expected);
    }
    run(&["flow", "localhost", "--bytes", "1MiB", "--duration", "5s"])
        .refused_by_usage("cannot be used with");
    run(&["inspect", "--capture", "/tmp/x", "--svg", "/tmp/y"]).refused_by_usage("cannot be used with");
    run(&["diagnose", "--from", "/nonexistent", "--flows", "4"]).refused_by_usage("cannot be used with");
}

#[test]
fn login_banner_and_exhausted_limits_have_their_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = folder.path().join("ssh");
    // A start-up file of the remote shell that prints something.
    fs::write(&ssh, "#!/bin/sh\nprintf 'Welcome to dtn2, all access is logged\\n'\n").unwrap();
    let ran =
        shell(folder.path(), "chmod +x $DIR/ssh; PATH=$DIR:$PATH exec $CS flow dtn2 --address 127.0.0.1");
    ran.refused(3, &["instead of starting an agent", "Welcome"]);
    // Descriptors: each flow takes one at each end.
    let ran = shell(folder.path(), "ulimit -n 24; exec $CS flow localhost -P 64 -t 100ms");
    ran.refused(5, &["ulimit -n"]);
}

/// A user other than root, whose processes and threads are limited: neither the
/// threads of flows, nor the agents, nor those of a session can start.
#[test]
fn root_exhausted_threads_have_their_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    // The program where that user can reach it.
    shell(folder.path(), "chmod 755 $DIR && { ln $CS $DIR/cs 2>/dev/null || cp $CS $DIR/cs; }").ok();
    let user = "setpriv --reuid=54321 --regid=54321 --clear-groups";
    for limit in [2, 4, 6, 8, 12, 14, 16, 40] {
        let flow = "flow localhost -P 64 -t 100ms";
        let ran = shell(folder.path(), &format!("exec prlimit --nproc={limit} {user} $DIR/cs {flow}"));
        ran.refused(5, &["ulimit -u"]);
    }
}

#[test]
fn samples_of_an_agent_that_stood_still_are_known_to_be_missing() {
    let mut child = clearstream(&[
        "flow",
        "localhost",
        "--duration",
        "4s",
        "--interval",
        "200ms",
        "--warm-up",
        "0s",
        "--pacing",
        "100Mb/s",
        "--json-stream",
    ])
    .spawn()
    .unwrap();
    until_line(&mut child, &[r#""kind":"interval""#]);
    let agents = children(child.id());
    assert_eq!(agents.len(), 2, "one agent for each side");
    signal(agents[0], "STOP");
    std::thread::sleep(Duration::from_millis(2200));
    signal(agents[0], "CONT");
    let run = finish(child, LIMIT);
    assert_eq!(run.code(), 8, "{}", run.stderr);
    let last: serde_json::Value = serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
    let summary = &last["payload"]["summary"];
    assert_eq!(summary["complete"], false);
    assert!(summary["notices"].to_string().contains("samples-missing"), "{}", summary["notices"]);
}

#[test]
fn root_full_disk_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("disk")).unwrap();
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/records/clearstream-40ge");
    // Every page is taken: a file can be made, and nothing written to it.
    let ran = shell(
        folder.path(),
        &r#"unshare -m sh -c '
        mount -t tmpfs -o size=64k,mode=0755 none $DIR/disk && cd $DIR/disk || exit 99
        for name in plan.json picture.svg host.tar.gz clearstream-flow.1 report.html improve.html; do
            echo old > $name
        done
        head -c 65536 /dev/zero > filler 2> /dev/null
        $CS inspect --svg picture.svg; echo "svg $?"
        $CS inspect --capture host.tar.gz; echo "capture $?"
        $CS tune plan --rate 40G --rtt 17ms --out plan.json > /dev/null; echo "plan $?"
        $CS completions --man .; echo "man $?"
        $CS report $RECORD -o report.html; echo "report $?"
        $CS improve --lab two-hosts -t 300ms -O 100ms --diagnosis-budget 2s --budget 3s --html improve.html > /dev/null
        echo "improve $?"
        cat plan.json picture.svg host.tar.gz clearstream-flow.1 report.html improve.html; ls -A | wc -l'"#
            .replace("$RECORD", record),
    );
    let codes = "svg 7\ncapture 7\nplan 7\nman 7\nreport 7\nimprove 7\n";
    assert_eq!(ran.ok(), format!("{codes}{}7\n", "old\n".repeat(6)), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("No space left").count(), 6, "{}", ran.stderr);
}

/// The order of the system calls decides what a crash leaves: contents first, then the
/// name, then the folder that holds it (syncfs(2), rename(2), fsync(2)).
#[test]
fn rendered_folder_is_synced_before_and_after_it_gets_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (out, trace) = (folder.path().join("files"), folder.path().join("trace"));
    let calls = "trace=syncfs,fsync,rename,renameat,renameat2";
    let traced = Command::new("strace")
        .args(["-f", "-y", "-e", calls, "-o", text(&trace)])
        .arg(common::program())
        .args(["route", "render", "gateways-6", "--as", "iproute2", "--out", text(&out)])
        .output()
        .expect("strace is installed");
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    let trace = fs::read_to_string(&trace).unwrap();
    let calls: Vec<&str> = trace.lines().filter(|line| line.contains(text(folder.path()))).collect();
    let at = |call: &str| calls.iter().position(|line| line.contains(call));
    let (contents, name) = (at("syncfs("), at("rename"));
    let entries = calls.iter().rposition(|line| line.contains("fsync("));
    assert!(contents.is_some() && contents < name && name < entries, "{trace}");
}

/// As flows and probes (`tests/flow.rs`): what was measured is given, and the exit code tells.
#[test]
fn interrupted_measurements_end_as_documented() {
    let measurements: [(&[&str], &str); 3] = [
        (&["message", "localhost", "--sizes", "1B-1MiB", "--duration", "1s"], "\"kind\":\"interval\""),
        (&["rdma", "send", "--to", "localhost", "--duration", "30s"], "\"kind\":\"interval\""),
        (&["diagnose", "localhost", "--budget", "60s"], "\"kind\":\"progress\""),
    ];
    for (arguments, started) in measurements {
        for name in ["INT", "TERM", "HUP"] {
            let arguments = [arguments, &["--json-stream"]].concat();
            let mut child = clearstream(&arguments).spawn().unwrap();
            until_line(&mut child, &[started]);
            // timeout(1) and terminals that go away signal the whole process group.
            for pid in children(child.id()).into_iter().chain([child.id()]) {
                signal(pid, name);
            }
            let run = finish(child, LIMIT);
            assert_eq!(run.code(), 130, "{arguments:?} {name}: {}", run.stderr);
            assert!(run.stderr.contains("interrupted"), "{arguments:?} {name}: {}", run.stderr);
            let last = run.stdout.lines().last().unwrap_or_default();
            assert!(last.contains("\"kind\":\"result\""), "{arguments:?} {name}: {}", run.stdout);
        }
    }
}

#[test]
fn root_unreachable_network_ends_with_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in ["flow localhost -t 100ms", "flow localhost --protocol udp -t 100ms", "probe localhost"]
    {
        let script = format!("unshare -n sh -c 'ip link set lo up; exec $CS {arguments} --address 10.9.9.9'");
        shell(folder.path(), &script).refused(3, &["Network is unreachable"]);
    }
}

#[test]
fn root_lab_with_an_unknown_congestion_control_is_a_mistake_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("robust-cc.toml");
    let file = two_hosts("robust-cc", "mtu = 1500");
    fs::write(&path, file.replace("name = \"here\"", "name = \"here\"\ncongestion-control = \"nosuch\""))
        .unwrap();
    run(&["lab", "up", text(&path)]).refused(2, &["nosuch"]);
}

#[test]
fn root_dead_host_of_a_lab_is_shown_and_titles_are_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("robust-dead.toml");
    fs::write(&path, two_hosts("robust-dead", "mtu = 1500").replace("a test lab", "\\u001b[2Jtitle\\u202e"))
        .unwrap();
    let lab = Lab::up(&path, "robust-dead");
    let list = run(&["lab", "list"]);
    let row = |text: &str| {
        text.lines().find(|line| line.trim_start().starts_with("robust-dead")).unwrap().to_owned()
    };
    let shown = row(list.ok());
    assert!(shown.contains("running") && shown.contains("\\u{1b}[2Jtitle\\u{202e}"), "{shown:?}");
    let state = fs::read_to_string("/run/clearstream/labs/robust-dead/state.json").unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let holder = state["hosts"][1]["pid"].as_u64().unwrap();
    signal(u32::try_from(holder).unwrap(), "KILL");
    common::eventually(Duration::from_secs(10), "the host is shown as dead", || {
        row(run(&["lab", "list"]).ok()).contains("dead: there")
    });
    assert_eq!(run(&["lab", "list", "--json"]).json()["dead_hosts"]["robust-dead"][0], "there");
    run(&["lab", "exec", &lab.0, "there", "true"]).refused(6, &["has died"]);
}
