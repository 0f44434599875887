//! Real processes: either side is killed, stopped or fails to start, and the other one ends with the reason.
//! Bounds are generous, they only catch "never".
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clearstream_control::{Peer, PeerError, StartCause, spawn, ssh_command};

#[path = "../examples/common/calls.rs"]
#[allow(dead_code, reason = "the examples use all of it")]
mod calls;

use calls::ProcessId;

const BOUND: Duration = Duration::from_secs(10);

/// A program out of `examples/`, which cargo builds beside the tests.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is missing: cargo test --examples builds it", path.display());
    path
}

fn agent() -> Peer {
    spawn(Command::new(example("agent")), "agent").unwrap()
}

fn process_of(peer: &mut Peer) -> String {
    peer.call(&ProcessId {}).unwrap().to_string()
}

fn signal(signal: &str, process: &str) {
    assert!(Command::new("kill").args([signal, process]).status().unwrap().success());
}

/// Gone, or a zombie that its parent has not reaped yet.
fn ended(process: &str) -> bool {
    match fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(stat) => stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}

fn await_end(process: &str) {
    let until = Instant::now() + BOUND;
    while !ended(process) {
        assert!(Instant::now() < until, "process {process} goes on");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A controller in a process of its own, with its agent's process id.
struct Controller {
    child: Child,
    agent: String,
}

impl Controller {
    fn start(arguments: &[&Path]) -> Self {
        let mut child = Command::new(example("controller"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut agent = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut agent).unwrap();
        let agent = agent.trim().to_owned();
        assert!(!ended(&agent));
        Self { child, agent }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn agent_ends_and_is_reaped_with_its_peer() {
    for in_order in [true, false] {
        let mut peer = agent();
        let process = process_of(&mut peer);
        if in_order {
            peer.shutdown()
        } else {
            drop(peer)
        }
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "reaped, not only dead");
    }
}

#[test]
fn busy_agent_ends_with_its_peer() {
    let controller = Controller::start(&[&example("agent")]);
    signal("-TERM", &controller.child.id().to_string());
    await_end(&controller.agent);
}

#[test]
fn killed_agent_is_reported_with_its_signal() {
    let mut peer = agent();
    signal("-KILL", &process_of(&mut peer));
    let start = Instant::now();
    let error = peer.call(&ProcessId {}).unwrap_err();
    assert!(start.elapsed() < BOUND);
    assert!(matches!(error, PeerError::Lost { .. }), "{error}");
    assert!(error.to_string().contains("signal: 9"), "{error}");
}

#[test]
fn stopped_agent_times_out_and_is_reaped() {
    let mut peer = agent();
    let process = process_of(&mut peer);
    signal("-STOP", &process);
    let start = Instant::now();
    let error = peer.call(&ProcessId {}).unwrap_err();
    assert!(start.elapsed() < BOUND);
    assert!(error.to_string().contains("nothing was received"), "{error}");
    drop(peer);
    await_end(&process);
}

#[test]
fn agent_ends_when_its_controller_is_killed() {
    let mut controller = Controller::start(&[&example("agent")]);
    controller.child.kill().unwrap();
    await_end(&controller.agent);
}

#[test]
fn agent_behind_another_process_ends_when_the_controller_is_killed() {
    // Stands for ssh and sshd: only the shell dies with the controller, the
    // agent has to notice the end of its input although it is busy.
    let relay = ["sh", "-c", r#""$1"; exit $?"#, "relay"].map(Path::new);
    let mut controller = Controller::start(&[&relay[..], &[&example("agent")]].concat());
    controller.child.kill().unwrap();
    await_end(&controller.agent);
}

#[test]
fn agent_ends_when_its_controller_times_out() {
    let controller = Controller::start(&[&example("agent")]);
    let process = controller.child.id().to_string();
    signal("-STOP", &process);
    await_end(&controller.agent);
    signal("-CONT", &process);
}

#[test]
fn agent_drops_garbage_and_ends() {
    let mut child = Command::new(example("agent"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(b"hello, who are you?\n").unwrap();
    let stdin = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("wrote text instead"), "{text}");
}

#[test]
fn missing_program_is_named() {
    let error = spawn(Command::new("/no/such/clearstream"), "here").map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Start { cause: StartCause::Program, .. }), "{error}");
    assert!(error.to_string().contains("/no/such/clearstream"), "{error}");
}

#[test]
fn stderr_of_an_agent_that_failed_to_start_is_reported() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo 'cannot open the moon' >&2; exit 3"]);
    let error = spawn(command, "dtn2").map(drop).unwrap_err().to_string();
    assert!(error.contains("dtn2") && error.contains("cannot open the moon"), "{error}");
    assert!(error.contains("exit status: 3"), "{error}");
}

#[test]
fn shell_output_is_recognised() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo 'Welcome to dtn2!'"]);
    let error = spawn(command, "dtn2").map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Start { cause: StartCause::NotAnAgent, .. }), "{error}");
    assert!(error.to_string().contains("Welcome to dtn2!"), "{error}");
}

#[test]
fn text_before_an_agent_is_skipped() {
    let mut command = Command::new("sh");
    command.args(["-c", r#"echo 'Welcome to dtn2!'; exec "$0""#]).arg(example("agent"));
    let mut peer = spawn(command, "dtn2").unwrap();
    assert_eq!(peer.skipped_text().as_deref(), Some("Welcome to dtn2!"));
    assert!(process_of(&mut peer).parse::<u32>().is_ok());
    peer.shutdown();
}

fn cause_of(error: &PeerError) -> StartCause {
    match error {
        PeerError::Start { cause, .. } => *cause,
        other => panic!("{other}"),
    }
}

#[test]
fn real_ssh_distinguishes_an_unknown_host_from_a_refused_port() {
    // RFC 2606 keeps .invalid free of hosts.
    let error =
        spawn(ssh_command("no-such-host.invalid", "clearstream", &[]), "remote").map(drop).unwrap_err();
    assert_eq!(cause_of(&error), StartCause::UnknownHost, "{error}");
    assert!(error.to_string().contains("Could not resolve hostname no-such-host.invalid"), "{error}");
    // Bound but not listening: connections are refused.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let options = [format!("Port={port}")];
    let error = spawn(ssh_command("127.0.0.1", "clearstream", &options), "local").map(drop).unwrap_err();
    assert_eq!(cause_of(&error), StartCause::Connection, "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
    let error = spawn(ssh_command("-oProxyCommand=true", "clearstream", &[]), "odd").map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Start { .. }), "{error}");
}

#[test]
fn messages_of_ssh_decide_the_start_cause() {
    // As OpenSSH 9 writes them.
    let cases = [
        (255, "Host key verification failed.", StartCause::HostKey),
        (255, "op@dtn2: Permission denied (publickey,password).", StartCause::Authentication),
        (255, "ssh: connect to host dtn2 port 22: Connection timed out", StartCause::Connection),
        (127, "sh: 1: exec: clearstream: not found", StartCause::Program),
        (1, "Permission denied", StartCause::Other),
    ];
    for (status, message, expected) in cases {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo '{message}' >&2; exit {status}")]);
        let error = spawn(command, "dtn2").map(drop).unwrap_err();
        assert_eq!(cause_of(&error), expected, "{error}");
        assert!(error.to_string().contains(message.trim_end_matches('.')), "{error}");
    }
}

#[test]
fn agent_behind_a_stand_in_for_ssh_works() {
    // Does what ssh and sshd do with the command line: one argument for a shell.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("my agent");
    std::os::unix::fs::symlink(example("agent"), &program).unwrap();
    let ssh = ssh_command("dtn2", program.to_str().unwrap(), &["ConnectTimeout=3".to_owned()]);
    let mut command = Command::new("sh");
    command.args(["-c", r#"while [ "$1" != -- ]; do shift; done; shift 2; sh -c "$1""#, "ssh"]);
    command.args(ssh.get_args());
    let mut peer = spawn(command, "dtn2").unwrap();
    assert!(process_of(&mut peer).parse::<u32>().is_ok());
    peer.shutdown();
}

/// An sshd of our own on loopback, with its keys, ended with the test.
struct Sshd {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Sshd {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.path().join(name));
            assert!(keygen.status().expect("openssh-client is installed").success());
        }
        // sshd(8) wants it; Debian makes it when the machine starts.
        fs::create_dir_all("/run/sshd").unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f", "/dev/null", "-p", &port.to_string(), "-h", &path("host")])
            .args(["-o", "ListenAddress=127.0.0.1", "-o", "PidFile=none", "-o", "StrictModes=no"])
            .args(["-o", &format!("AuthorizedKeysFile={}", path("user.pub"))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssh-server is installed");
        let key = fs::read_to_string(path("host.pub")).unwrap();
        fs::write(path("known"), format!("[127.0.0.1]:{port} {key}")).unwrap();
        let sshd = Self { child, folder, port };
        let until = Instant::now() + BOUND;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "sshd does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        sshd
    }

    fn command(&self, known: &str, identity: &str) -> Command {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let options = [
            "-F/dev/null".to_owned(),
            format!("Port={}", self.port),
            "BatchMode=yes".to_owned(),
            "IdentitiesOnly=yes".to_owned(),
            format!("UserKnownHostsFile={}", path(known)),
            format!("IdentityFile={}", path(identity)),
        ];
        ssh_command("root@127.0.0.1", example("agent").to_str().unwrap(), &options)
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn root_agent_behind_a_real_sshd_works_and_ends_with_its_controller() {
    if !Path::new("/usr/sbin/sshd").exists() && Path::new("/run/systemd/system").exists() {
        // Installing it here would open a port of this machine to everybody,
        // so the script that installs what tests need does not.
        eprintln!("skipped: no sshd on this machine (openssh-server)");
        return;
    }
    let sshd = Sshd::start();
    let mut peer = spawn(sshd.command("known", "user"), "local").unwrap();
    // By ssh's log and by sshd's environment.
    let here = Some(std::net::IpAddr::from([127, 0, 0, 1]));
    assert_eq!((peer.login_address(), peer.hello().ssh_address), (here, here));
    let process = process_of(&mut peer);
    peer.shutdown();
    await_end(&process);

    let command = sshd.command("known", "user");
    let arguments = std::iter::once(command.get_program()).chain(command.get_args());
    let mut controller = Controller::start(&arguments.map(Path::new).collect::<Vec<_>>());
    controller.child.kill().unwrap();
    await_end(&controller.agent);

    let error = spawn(sshd.command("none", "user"), "local").map(drop).unwrap_err();
    assert_eq!(cause_of(&error), StartCause::HostKey, "{error}");
    let error = spawn(sshd.command("known", "none"), "local").map(drop).unwrap_err();
    assert_eq!(cause_of(&error), StartCause::Authentication, "{error}");
}
