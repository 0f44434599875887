//! First contact with another host as a person makes it: through a real sshd in a host of a
//! lab, with aliases, families, banners, hangs, firewalls, and no program there yet.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::common::{Lab, Run, clearstream, eventually, finish, program, run};
use serde_json::Value;

/// A flow that is over soon.
const QUICK: [&str; 5] = ["-t", "300ms", "--warm-up", "0s", "--json"];

/// A lab of two hosts, `here` and `there`, with an sshd in `there`.
struct World {
    sshd: Child,
    lab: Lab,
    folder: tempfile::TempDir,
}

impl World {
    /// `options` are further ones of sshd_config(5).
    fn new(name: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lab = Lab::of_two_hosts(folder.path(), name);
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.path().join(key));
            assert!(keygen.status().expect("openssh-client is installed").success());
        }
        // sshd(8) wants it; Debian makes it when the machine starts.
        fs::create_dir_all("/run/sshd").unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut command = clearstream(&["lab", "exec", name, "there", "--"]);
        command.args(["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-h", &path("host")]);
        command.args(["-o", "PidFile=none", "-o", "StrictModes=no"]);
        command.args(["-o", &format!("AuthorizedKeysFile={}", path("user.pub"))]);
        for option in options {
            command.args(["-o", option]);
        }
        let sshd = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let config = format!(
            "Host dtn2 dtn3\n HostName 10.0.0.2\nHost both\n HostName both.test\nHost far\n HostName nowhere.invalid\n \
             ProxyCommand ssh -F {} -W 10.0.0.2:22 dtn2\nHost *\n User root\n IdentityFile {}\n IdentitiesOnly yes\n \
             UserKnownHostsFile /dev/null\n StrictHostKeyChecking no\n BatchMode yes\n",
            path("ssh_config"),
            path("user")
        );
        fs::write(path("ssh_config"), config).unwrap();
        let world = Self { sshd, lab, folder };
        // The lab's own file: a name of both families.
        world.tool("here", "printf '10.0.0.2 both.test\\nfd00::2 both.test\\n' >> /etc/hosts");
        eventually(Duration::from_secs(20), "sshd listens", || {
            let sockets = world.exec("there", &["ss", "-ltn"]);
            sockets.stdout.lines().filter(|line| line.contains(":22 ")).count() == 2
        });
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn exec(&self, host: &str, arguments: &[&str]) -> Run {
        run(&[&["lab", "exec", &self.lab.0, host, "--"], arguments].concat())
    }

    fn tool(&self, host: &str, script: &str) {
        self.exec(host, &["sh", "-c", script]).ok();
    }

    /// The program in `here`, still without its ssh options.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = clearstream(&["lab", "exec", &self.lab.0, "here", "--"]);
        command.arg(program()).args(arguments).env("CLEARSTREAM_CONFIG", "");
        command
    }

    fn ssh_option(&self) -> String {
        format!("--ssh-option=-F{}", self.path("ssh_config").display())
    }

    /// The program in `here`, with what it needs to find this sshd and itself there.
    fn run(&self, arguments: &[&str]) -> Run {
        let remote = format!("--remote-program={}", program().display());
        let mut command = self.command(arguments);
        command.args([&self.ssh_option(), &remote]);
        finish(command.spawn().unwrap(), Duration::from_secs(90))
    }

    /// Lets nothing reach `there` but ssh and this port, as many sites do.
    fn firewall(&self, port: u16) {
        let rules = format!(
            "table inet site {{ chain input {{ type filter hook input priority 0; policy accept; \
             tcp flags & (syn | ack) == syn tcp dport != {{ 22, {port} }} drop; \
             udp sport {port} accept; udp dport {port} accept; meta l4proto udp drop;\n}}\n}}\n"
        );
        let path = self.path("rules.nft");
        fs::write(&path, rules).unwrap();
        self.exec("there", &["nft", "-f", path.to_str().unwrap()]).ok();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

/// Where the probes of a run went.
fn probed(run: &Run) -> Value {
    run.json()["directions"][0]["to_address"].clone()
}

#[test]
fn root_aliases_brackets_and_jump_hosts_lead_to_the_data() {
    let world = World::new("e2e-alias", &[]);
    let probe = |host: &str| world.run(&["probe", host, "-c", "3", "--json"]);
    for host in ["dtn2", "root@dtn2", "10.0.0.2"] {
        assert_eq!(probed(&probe(host)), "10.0.0.2", "{host}");
    }
    for host in ["[fd00::2]", "root@[fd00::2]:22", "fd00::2"] {
        assert_eq!(probed(&probe(host)), "fd00::2", "{host}");
    }
    world.run(&[&["flow", "dtn2"], QUICK.as_slice()].concat()).json();
    // Several of them and this host are a mesh; two names of one machine are two hosts here.
    let (runs, quick) =
        (world.path("runs"), "[experiment.all-pairs]\nduration = \"200ms\"\nwarm-up = \"50ms\"\n");
    let study = world.path("pairs.toml");
    let text = "schema = \"clearstream.study\"\nversion = 1\nname = \"pairs\"\ntitle = \"Pairs\"\n[[experiment]]\n\
                name = \"pairs\"\ntitle = \"Pairs\"\nworkload = \"all-pairs\"\n";
    fs::write(&study, format!("{text}{quick}")).unwrap();
    let line = ["study", "run", study.to_str().unwrap(), "--runs", runs.to_str().unwrap(), "--json"];
    let mesh = world.run(&[&line, ["--to", "dtn2", "--to", "dtn3"].as_slice()].concat()).json();
    assert_eq!(mesh["done_trial_count"], 1, "{mesh}");
    let trials =
        fs::read_to_string(Path::new(mesh["folder"].as_str().unwrap()).join("trials.jsonl")).unwrap();
    let trial: Value = serde_json::from_str(trials.lines().next().unwrap()).unwrap();
    let rounds = &trial["outcome"]["measured"]["detail"]["document"]["rounds"];
    let pairs = rounds.as_array().unwrap().iter().flat_map(|round| round.as_array().unwrap());
    let pairs: Vec<_> =
        pairs.map(|pair| (pair["from"].as_str().unwrap(), pair["to"].as_str().unwrap())).collect();
    for pair in [("here", "dtn2"), ("dtn2", "here"), ("dtn2", "dtn3"), ("dtn3", "here")] {
        assert!(pairs.contains(&pair), "{pairs:?}");
    }
    assert_eq!(pairs.len(), 6, "{pairs:?}");
    for (arguments, text) in [
        (["dtn2", "dtn2"].as_slice(), "dtn2 is named twice"),
        (&["dtn2", "localhost"], "localhost is this host"),
        (&["dtn2", "dtn3", "--address", "10.0.0.2"], "--address is of one host"),
    ] {
        world.run(&[&line, arguments].concat()).refused(2, &[text]);
    }
    // ssh has no address of its own behind a proxy, and the name means nothing here: what
    // sshd there reports does.
    assert_eq!(probed(&probe("far")), "10.0.0.2");
}

#[test]
fn root_a_family_is_chosen_for_control_and_data() {
    let world = World::new("e2e-family", &[]);
    for (option, address) in [("-4", "10.0.0.2"), ("-6", "fd00::2"), ("--ipv6", "fd00::2")] {
        assert_eq!(probed(&world.run(&["probe", "both", option, "-c", "3", "--json"])), address);
    }
    world.run(&["probe", "10.0.0.2", "-6"]).refused_with(3);
    world.run(&["probe", "dtn2", "-6", "--address", "10.0.0.2"]).refused(2, &["-6", "10.0.0.2"]);
    world.run(&["probe", "dtn2", "-4", "-6"]).refused_by_usage("--ipv6");
    let local = |option| probed(&run(&["probe", "localhost", option, "-c", "3", "--json"]));
    assert_eq!((local("-4"), local("-6")), ("127.0.0.1".into(), "::1".into()));
    let lab = probed(&run(&["probe", "--lab", &world.lab.0, "-6", "-c", "3", "--json"]));
    assert_eq!(lab, "fd00::2");
}

#[test]
fn root_a_firewall_is_named_with_the_option_that_helps() {
    let world = World::new("e2e-firewall", &[]);
    world.firewall(5201);
    let quick_messages = ["message", "--to", "dtn2", "--sizes", "64B", "--duration", "20ms", "--json"];
    let quick_writes = ["rdma", "write", "--to", "dtn2", "--size", "64", "--iterations", "50", "--json"];
    let calls: [Vec<&str>; 5] = [
        [&["flow", "dtn2"], QUICK.as_slice()].concat(),
        [&["flow", "dtn2", "--protocol", "udp"], QUICK.as_slice()].concat(),
        vec!["probe", "dtn2", "-c", "3", "--json"],
        quick_messages.to_vec(),
        quick_writes.to_vec(),
    ];
    for call in calls {
        world.run(&call).refused(3, &["firewall", "--port"]);
        world.run(&[call.as_slice(), &["--port", "5201"]].concat()).json();
        // The names that the option had.
        world.run(&[call.as_slice(), &["--destination-port", "5201"]].concat()).json();
    }
    // A diagnosis has its probe through the same port.
    let arguments = ["diagnose", "dtn2", "-p", "5201", "--budget", "4s", "-t", "1s", "--json"];
    let diagnosis = world.run(&arguments).json();
    assert!(!diagnosis.to_string().contains("probe-failed"), "{diagnosis:#}");
}

#[test]
fn root_a_login_banner_is_skipped_and_named() {
    let banner =
        "ForceCommand=echo 'Welcome to dtn2!'; echo; echo 'have fun'; eval \"$SSH_ORIGINAL_COMMAND\"";
    let world = World::new("e2e-banner", &[banner]);
    let flow = world.run(&[&["flow", "dtn2"], QUICK.as_slice()].concat());
    flow.json();
    assert!(flow.stderr.contains("dtn2") && flow.stderr.contains("\"Welcome to dtn2!\""), "{}", flow.stderr);
}

#[test]
fn root_text_in_place_of_an_agent_is_shown() {
    let world = World::new("e2e-text", &["ForceCommand=echo 'This account is for sftp'"]);
    let flow = world.run(&["flow", "dtn2"]);
    flow.refused(3, &["This account is for sftp", "ssh dtn2 true"]);
}

/// A home on a file server that is away, for instance: 30 s, and a line after 2 s.
#[test]
fn root_a_host_that_hangs_after_the_login_is_reported_and_given_up() {
    let world = World::new("e2e-hang", &["ForceCommand=exec sleep 600"]);
    let flow = world.run(&["flow", "dtn2"]);
    flow.refused(3, &["no agent responded"]);
    assert!(flow.stderr.contains("connected to dtn2, waiting for its agent"), "{}", flow.stderr);
}

/// A program `ssh` of this text in front of the PATH of a command.
fn fake_ssh(folder: &Path, script: &str) -> String {
    let program = folder.join("ssh");
    fs::write(&program, format!("#!/bin/bash\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

#[test]
fn a_login_that_takes_long_is_reported_after_2_s_and_at_30_s() {
    let folder = tempfile::tempdir().unwrap();
    let slow = "sleep 31; echo 'ssh: connect to host dtn2 port 22: Connection timed out' >&2; exit 255";
    let path = fake_ssh(folder.path(), slow);
    let flow =
        finish(clearstream(&["flow", "dtn2"]).env("PATH", path).spawn().unwrap(), Duration::from_secs(90));
    flow.refused_with(3);
    let lines: Vec<_> = flow.stderr.lines().filter(|line| line.contains("waiting for ssh")).collect();
    let [first, second] = lines[..] else { panic!("{}", flow.stderr) };
    assert!(first.contains("waiting for ssh to log in to dtn2") && !first.contains("still"), "{first}");
    assert!(second.contains("still waiting for ssh to log in to dtn2, for 30 s"), "{second}");
}

/// ssh opens the terminal by name while it prompts: the prompt says what is waited for.
#[test]
fn no_line_stands_in_a_password_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let through_terminal = |script: &str| {
        let path = fake_ssh(folder.path(), script);
        // script(1) runs the command in a terminal of its own.
        let mut command = Command::new("script");
        command.args(["-qec", &format!("{} flow dtn2", program().display()), "/dev/null"]);
        command.env("PATH", path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().unwrap(), Duration::from_secs(60)).stdout
    };
    let prompt =
        "exec 3<>/dev/tty; printf \"dtn2's password: \" >&3; sleep 3; printf 'typed\\n' >&3; exec 3>&-";
    let wrong = "echo 'root@dtn2: Permission denied (publickey,password).' >&2; exit 255";
    let seen = through_terminal(&format!("{prompt}; sleep 4; {wrong}"));
    let (prompting, afterwards) = seen.split_once("typed").unwrap_or_else(|| panic!("{seen}"));
    assert!(prompting.contains("dtn2's password: ") && afterwards.contains("Permission denied"), "{seen}");
    assert!(!prompting.contains("waiting for ssh"), "{seen}");
    // Once the prompt is gone, the wait is reported.
    assert!(afterwards.contains("waiting for ssh to log in to dtn2"), "{seen}");
}

/// A home of its own: nothing of this machine's is touched.
fn world_with_home(name: &str) -> (World, tempfile::TempDir) {
    let home = tempfile::tempdir().unwrap();
    let environment = format!("SetEnv=HOME={} PATH=/usr/bin:/bin", home.path().display());
    (World::new(name, &[&environment]), home)
}

#[test]
fn root_a_host_without_the_program_gets_it_by_deploy() {
    let (world, home) = world_with_home("e2e-deploy");
    // Without its symbols, which are a third of it.
    let own = world.path("own");
    assert!(Command::new("strip").arg("-o").arg(&own).arg(program()).status().unwrap().success());
    let bare = |arguments: &[&str]| {
        let mut command = clearstream(&["lab", "exec", &world.lab.0, "here", "--"]);
        command.arg(&own).args(arguments).arg(world.ssh_option()).env("CLEARSTREAM_CONFIG", "");
        finish(command.spawn().unwrap(), Duration::from_secs(120))
    };
    bare(&["flow", "dtn2"]).refused(5, &["clearstream deploy dtn2", "--remote-program"]);
    let deployed = bare(&["deploy", "dtn2", "--json"]).json();
    let place = home.path().join(".local/bin/clearstream");
    assert_eq!(deployed["path"], place.to_str().unwrap());
    assert_eq!(deployed["program_version"], format!("clearstream {}", env!("CARGO_PKG_VERSION")));
    assert_eq!((&deployed["copied"], &deployed["found_by_name"]), (&true.into(), &true.into()));
    let sum = Command::new("sha256sum").arg(&place).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert_eq!(deployed["sha256"], sum.split_whitespace().next().unwrap());
    assert_eq!(fs::read(&place).unwrap(), fs::read(&own).unwrap());
    bare(&[&["flow", "dtn2"], QUICK.as_slice()].concat()).json();
    // A second time there is nothing to do.
    let second = bare(&["deploy", "dtn2"]);
    assert!(second.ok().contains("has it already"), "{}", second.stdout);
    // Another machine's program, and what is none.
    let other = world.path("other");
    let mut bytes = fs::read("/bin/sh").unwrap();
    bytes[18] = if bytes[18] == 22 { 62 } else { 22 };
    fs::write(&other, bytes).unwrap();
    bare(&["deploy", "dtn2", "--program", other.to_str().unwrap()]).refused(5, &["s390x", "--program"]);
    let text = world.path("ssh_config");
    bare(&["deploy", "dtn2", "--program", text.to_str().unwrap()]).refused(2, &["is no program"]);
    assert_eq!(fs::read(&place).unwrap(), fs::read(&own).unwrap(), "still the same");
    // A folder that cannot be made.
    bare(&["deploy", "dtn2", "--remote-program", "/proc/none/clearstream"]).refused(7, &["/proc/none"]);
}

fn write_config(path: &Path, text: &str) {
    fs::write(path, format!("schema = \"clearstream.config\"\nversion = 1\n{text}")).unwrap();
}

#[test]
fn root_the_file_of_defaults_has_what_every_call_would_repeat() {
    let world = World::new("e2e-defaults", &[]);
    world.firewall(5201);
    let path = world.path("config.toml");
    let with_file = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("CLEARSTREAM_CONFIG", &path);
        finish(command.spawn().unwrap(), Duration::from_secs(60))
    };
    write_config(
        &path,
        &format!(
            "[defaults]\nport = 1\n[host.dtn2]\nssh-options = [\"-F{}\"]\nremote-program = \"{}\"\nport = 5201\n\
             [host.dtn2.flow]\nduration = \"300ms\"\nwarm-up = \"0s\"\n",
            world.path("ssh_config").display(),
            program().display()
        ),
    );
    let flow = with_file(&["flow", "dtn2", "--json"]);
    let document = flow.json();
    assert_eq!(document["summary"]["requested"]["destination-port"], 5201, "{document:#}");
    assert!(flow.stderr.contains("--port=5201") && flow.stderr.contains("config.toml"), "{}", flow.stderr);
    // The command line wins, and what has no effect there is left out.
    with_file(&["probe", "dtn2", "--port", "5202"]).refused(3, &["firewall"]);
    with_file(&["probe", "localhost", "-c", "3", "--json"]).json();
    let shown = with_file(&["defaults", "dtn2", "--json"]).json();
    let of = |option: &str| {
        let settings = shown["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["option"] == option).unwrap_or(&Value::Null).clone()
    };
    assert_eq!((&of("port")["value"], &of("port")["host"]), (&5201.into(), &"dtn2".into()));
    assert_eq!((&of("duration")["verb"], &of("duration")["line"]), (&"flow".into(), &10.into()));
    // Slips name file, line, key and what was meant.
    write_config(&path, "[host.dtn2]\nremote-progam = \"x\"\n");
    with_file(&["flow", "dtn2"])
        .refused(2, &["config.toml:4: host.dtn2.remote-progam", "did you mean `remote-program`?"]);
    write_config(&path, "[host.dtn2]\nport = 70000\n");
    with_file(&["flow", "dtn2"]).refused(2, &["config.toml:4: host.dtn2.port", "70000"]);
    // Verbs that reach no host ignore it; a file that is named must exist.
    with_file(&["lab", "list"]).ok();
    fs::remove_file(&path).unwrap();
    with_file(&["flow", "localhost"]).refused(7, &["config.toml"]);
}
