//! Hosts that are directories, hosts in namespaces, and children that end by
//! kill -9 at a chosen moment.
use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Write as _},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use clearstream_plan::{Duty, Guarded, Host, Options, Permitted, apply, begin_test, recover, revert};
use clearstream_schema::plan::{Effect, LinkAttribute, Plan, PlanHost, Setting, Step, Value};
use signal_hook::consts::SIGTERM;

use crate::guard::Scripted;

pub(crate) fn sysctl(key: &str) -> Setting {
    Setting::Sysctl(key.to_owned())
}

pub(crate) fn step(setting: Setting, desired: &str) -> Step {
    Step {
        current: None,
        desired: Some(Value::of(&setting, desired)),
        setting,
        reason: "a test".to_owned(),
        effect: Effect::Now,
    }
}

pub(crate) fn plan(name: &str, kernel: &str, steps: Vec<Step>) -> Plan {
    Plan {
        schema: "clearstream.plan".to_owned(),
        version: 1,
        purpose: "a test".to_owned(),
        host: PlanHost { name: name.to_owned(), kernel: kernel.to_owned() },
        steps,
        advice: Vec::new(),
    }
}

/// A directory laid out like a host.
pub(crate) struct Tree {
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) const FILES: [(&str, &str); 7] = [
    ("proc/sys/kernel/hostname", "dtn1\n"),
    ("proc/sys/kernel/osrelease", "6.18.44-test\n"),
    ("proc/sys/kernel/random/boot_id", "a-boot\n"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t33554432\n"),
    ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
    ("sys/class/net/eth0/mtu", "1500\n"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000\n"),
];

impl Tree {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in FILES {
            let path = folder.path().join("root").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub(crate) fn journals(&self) -> PathBuf {
        self.folder.path().join("plans")
    }

    pub(crate) fn options(&self) -> Options {
        Options::new(Host::directory(self.root()), self.journals())
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        fs::write(self.root().join(path), text).unwrap();
    }

    /// All texts, with blanks as the kernel would print them.
    pub(crate) fn texts(&self) -> BTreeMap<&'static str, String> {
        let single_blanks = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        FILES
            .iter()
            .map(|(path, _)| (*path, single_blanks(fs::read_to_string(self.root().join(path)).unwrap())))
            .collect()
    }

    pub(crate) fn plan(&self) -> Plan {
        let mtu = Setting::Link { interface: "eth0".to_owned(), attribute: LinkAttribute::Mtu };
        let rps = Setting::File("sys/class/net/eth0/queues/rx-0/rps_cpus".to_owned());
        let steps = vec![
            step(sysctl("net.ipv4.tcp_rmem"), "4096 131072 134217728"),
            step(sysctl("net.ipv4.tcp_wmem"), "4096 65536 134217728"),
            step(mtu, "9000"),
            step(rps, "3"),
        ];
        plan("dtn1", "6.18.44-test", steps)
    }
}

const ACTION: &str = "PLAN_TEST_ACTION";

/// Runs an action in a child of this test program, which calls [`child`] and
/// dies at its n-th event. True when it lived to the end.
pub(crate) fn run_child(
    action: &str,
    root: Option<&Path>,
    journals: &Path,
    plan: &Plan,
    die_at: usize,
    prepare: impl FnOnce(&mut Command),
) -> bool {
    let mut command = child_command(action, root, journals, plan, die_at);
    prepare(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.signal() {
        Some(9) => false,
        None if output.status.success() => true,
        _ => panic!("{action}: {:?}\n{}\n{text}", output.status, String::from_utf8_lossy(&output.stdout)),
    }
}

pub(crate) fn child_command(
    action: &str,
    root: Option<&Path>,
    journals: &Path,
    plan: &Plan,
    die_at: usize,
) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]);
    command
        .env(ACTION, action)
        .env("PLAN_TEST_JOURNALS", journals)
        .env("PLAN_TEST_DIE_AT", die_at.to_string());
    command.env("PLAN_TEST_PLAN", serde_json::to_string(plan).unwrap());
    if let Some(root) = root {
        command.env("PLAN_TEST_ROOT", root);
    }
    command
}

/// The guardian of a child, for the same tree.
fn guardian_command(journals: &Path, plan: &Plan) -> impl Fn() -> Command + 'static {
    let root = env::var_os("PLAN_TEST_ROOT").map(PathBuf::from);
    let (journals, plan) = (journals.to_owned(), plan.clone());
    move || child_command("guard", root.as_deref(), &journals, &plan, usize::MAX)
}

/// What the test named `child` does: nothing, unless it is one.
pub(crate) fn child() {
    let Ok(action) = env::var(ACTION) else { return };
    let journals = env::var("PLAN_TEST_JOURNALS").unwrap();
    let die_at: usize = env::var("PLAN_TEST_DIE_AT").unwrap().parse().unwrap();
    let plan: Plan = serde_json::from_str(&env::var("PLAN_TEST_PLAN").unwrap()).unwrap();
    let host = env::var("PLAN_TEST_ROOT").map_or_else(|_| Host::live(), Host::directory);
    let count = AtomicUsize::new(0);
    let options = Options::new(host, journals).permitting(Permitted::Any).on_event(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == die_at {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    });
    match action.as_str() {
        "apply" => drop(apply(&plan, &options).unwrap()),
        "test" => {
            let (inner, test) = (options.clone(), Mutex::new(None));
            let tested = options.before_changes(move |begun| {
                *test.lock().unwrap() = Some(begin_test(begun.journal, &inner)?);
                Ok(())
            });
            apply(&plan, &tested).unwrap();
        }
        // Under a guard, with this test program as the guardian.
        "guarded" => {
            let guardian = guardian_command(&options.journals, &plan);
            let guarded = Guarded::new(Scripted::default(), move || Ok(guardian()));
            guarded.apply(&plan, &options).unwrap();
        }
        "guard" => {
            let told_to_end = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(SIGTERM, Arc::clone(&told_to_end)).unwrap();
            // A word at the start of a line: the harness has begun one.
            let answer = |word: &str| {
                let mut out = io::stdout().lock();
                out.write_all(format!("\n{word}\n").as_bytes()).and_then(|()| out.flush()).unwrap();
            };
            let duty =
                Duty { reports: io::stdin(), answer: &answer, told_to_end: &told_to_end, problem: &|_| () };
            duty.run(&options);
        }
        "recover" => {
            for recovered in recover(&options).unwrap() {
                assert_eq!(recovered.problem, None);
            }
        }
        journal => drop(revert(journal, false, &options).unwrap()),
    }
}
