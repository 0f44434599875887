//! A change that has to be confirmed is restored, whatever became of the folder of the
//! journals, of limits, and of the guardian; what cannot be restored is named. Each case
//! has namespaces of its own, and `ip`, `tc` and `sysctl` say what is so.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use crate::common::{finish, program};
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

/// Cases that run at a time.
const AT_A_TIME: usize = 4;

/// State of the folder, or limits of the processes, from the change on.
const STATES: [&str; 8] =
    ["as-before", "full", "read-only", "gone", "moved", "other-owner", "few-descriptors", "little-memory"];

/// What is done then, and what has to follow: `restored`, `kept`, or words of an error
/// after which the end of the guardian restores.
fn expected(state: &str, end: &str) -> Option<&'static str> {
    match (state, end) {
        (_, "deadline" | "told" | "hangup") => Some("restored"),
        // Nothing is left that says what to restore; documented so.
        ("gone" | "moved", "guardian-killed" | "recover") => None,
        (_, "guardian-killed" | "recover") => Some("restored"),
        ("gone" | "moved", "revert") => Some("applied here"),
        (_, "revert") => Some("restored"),
        ("gone" | "moved", "confirm") => Some("nothing waits for confirmation"),
        ("read-only", "confirm") => Some("cannot be kept"),
        (_, "confirm") => Some("kept"),
        _ => unreachable!(),
    }
}

const SCRIPT: &str = r#"
set -eu
mount -t tmpfs -o size=256k state "$FOLDER"
mount -t sysfs sys /sys
ip link set lo up
ip link add d0 type veth peer name d1
ip address add 10.7.0.1/24 dev d0
ip link set d1 up
ip link set d0 up
shown() {
    sysctl -n net.ipv4.tcp_sack
    cat /sys/class/net/d0/mtu /sys/class/net/d0/queues/rx-0/rps_cpus
    tc qdisc show dev d0
    ip route show table all | grep -F 10.8.0.0 || true
    [ -z "$INTERRUPT" ] || cat /proc/irq/$INTERRUPT/smp_affinity_list
}
guardian() { pgrep -xf "$PROGRAM plan guard" || true; }
eventually() {
    for _ in $(seq 300); do if eval "$1"; then return 0; fi; sleep 0.1; done
    echo "never: $1"; shown; exit 1
}
limit=
run() { rc=0; $limit "$PROGRAM" "$@" >"$OUT" 2>&1 || rc=$?; }
before=$(shown)
run plan apply "$PLAN" --yes
case $rc in 0) ;; *) cat "$OUT"; exit 1 ;; esac
run plan revert
[ "$(shown)" = "$before" ] || { cat "$OUT"; exit 1; }
case $END in deadline|recover|hangup|guardian-killed) within=2s ;; *) within=600s ;; esac
case $STATE in
few-descriptors) limit='prlimit --nofile=24:24' ;;
little-memory) limit='prlimit --as=1500000000:1500000000' ;;
esac
run plan apply "$PLAN" --yes --confirm-within $within
case $rc in 0) ;; *) cat "$OUT"; exit 1 ;; esac
changed=$(shown)
[ "$changed" != "$before" ] || { echo "nothing changed"; exit 1; }
[ -n "$(guardian)" ] || { echo "no guardian"; exit 1; }
case $STATE in
full)
    # No space, and none left in the last block of the journal either.
    journal=$(ls "$CLEARSTREAM_PLANS"/*.jsonl | tail -1)
    size=$(stat -c %s "$journal")
    head -c $((4096 - size % 4096)) /dev/zero | tr '\0' '\n' >>"$journal"
    dd if=/dev/zero of="$FOLDER/filled" 2>/dev/null || true ;;
read-only) mount -o remount,ro "$FOLDER" ;;
gone) rm -r "$CLEARSTREAM_PLANS" ;;
moved) mv "$CLEARSTREAM_PLANS" "$FOLDER/elsewhere" ;;
other-owner) chown -R nobody "$CLEARSTREAM_PLANS"; chmod -R go-rwx "$CLEARSTREAM_PLANS" ;;
few-descriptors) limit='prlimit --nofile=8:8' ;;
little-memory) limit='prlimit --as=600000000:600000000' ;;
esac
case $END in
deadline) ;;
told) kill -TERM $(guardian) ;;
hangup)
    for signal in HUP INT QUIT PIPE; do kill -$signal $(guardian); done
    [ -n "$(guardian)" ] || { echo "the guardian ended"; exit 1; }
    [ "$(shown)" = "$changed" ] || { echo "restored too early"; exit 1; } ;;
guardian-killed)
    kill -KILL $(guardian)
    sleep 2
    [ "$(shown)" = "$changed" ] || { echo "restored by nobody"; exit 1; }
    # The next start of the program, whatever it is for.
    run plan history
    grep -q 'was not kept' "$OUT" || { echo "not said:"; cat "$OUT"; exit 1; } ;;
recover)
    kill -KILL $(guardian)
    sleep 2
    run plan recover ;;
revert|confirm) run plan "$END" ;;
esac
case $EXPECTED in
restored)
    eventually '[ "$(shown)" = "$before" ]'
    # Elsewhere it goes on to mark the journal for a while.
    [ "$STATE,$END" != as-before,hangup ] || eventually '[ -z "$(guardian)" ]' ;;
kept)
    [ $rc = 0 ] || { cat "$OUT"; exit 1; }
    eventually '[ -z "$(guardian)" ]'
    [ "$(shown)" = "$changed" ] || { echo "not kept"; exit 1; } ;;
*)
    [ $rc != 0 ] && grep -q "$EXPECTED" "$OUT" || { echo "exit $rc, without \"$EXPECTED\":"; cat "$OUT"; exit 1; }
    kill -TERM $(guardian)
    eventually '[ "$(shown)" = "$before" ]' ;;
esac
"#;

/// An interrupt of a card that only this test changes. Interrupts are of the whole machine,
/// so that each case has one of its own; its processors are restored whatever happens.
struct Interrupt {
    number: String,
    before: String,
    /// Locked, so that another run of this test takes another one.
    _locked: File,
}

impl Interrupt {
    /// Those that may be written: not the kernel's own, as of a disk's queues.
    fn all() -> Vec<Self> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        if online.trim() == "0" {
            return Vec::new();
        }
        let names = fs::read_dir("/proc/irq").unwrap().flatten();
        names.filter_map(|entry| Self::take(entry.file_name().to_str()?)).collect()
    }

    fn take(number: &str) -> Option<Self> {
        number.parse::<u32>().ok()?;
        let path = affinity(number);
        let locked = File::open(&path).ok()?;
        flock(&locked, FlockOperation::NonBlockingLockExclusive).ok()?;
        let before = fs::read_to_string(&path).ok()?;
        // Its own value: the kernel refuses it where it permits none.
        fs::write(&path, &before).ok()?;
        (before.trim() != WANTED).then(|| Self { number: number.to_owned(), before, _locked: locked })
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        fs::write(affinity(&self.number), &self.before).expect("an interrupt takes its own processors");
    }
}

/// The processor to which the plan moves an interrupt; it is online everywhere.
const WANTED: &str = "0";

fn affinity(number: &str) -> String {
    format!("/proc/irq/{number}/smp_affinity_list")
}

/// One setting of each family: a sysctl, an interface, a queueing discipline, a queue, a
/// route, and an interrupt where there is one.
fn plan(path: &Path, interrupt: Option<&Interrupt>) {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let step = |setting, desired| json!({"setting": setting, "desired": desired, "reason": "a test", "effect": "now"});
    let mut steps = vec![
        step(json!({"sysctl": "net.ipv4.tcp_sack"}), "0"),
        step(json!({"link": {"interface": "d0", "attribute": "mtu"}}), "1400"),
        step(json!({"qdisc": {"interface": "d0"}}), "pfifo limit 77"),
        step(json!({"file": "sys/class/net/d0/queues/rx-0/rps_cpus"}), "1"),
        step(json!({"route": {"table": 77, "destination": "10.8.0.0/24"}}), "via 10.7.0.2 dev d0 proto 117"),
    ];
    if let Some(Interrupt { number, .. }) = interrupt {
        steps.push(step(json!({"file": format!("proc/irq/{number}/smp_affinity_list")}), WANTED));
    }
    let plan = json!({
        "schema": "clearstream.plan", "version": 1, "purpose": "a test",
        "host": {"name": host.trim(), "kernel": kernel.trim()}, "steps": steps,
    });
    fs::write(path, plan.to_string()).unwrap();
}

#[test]
fn root_what_is_not_kept_is_restored_in_every_state_of_the_folder() {
    let ends = ["deadline", "told", "hangup", "guardian-killed", "revert", "confirm", "recover"];
    let cases = STATES.iter().flat_map(|state| ends.map(|end| (*state, end)));
    let cases: Vec<_> = cases.filter_map(|(state, end)| Some((state, end, expected(state, end)?))).collect();
    let (next, failures) = (Mutex::new(cases.into_iter()), Mutex::new(Vec::new()));
    let mut interrupts = Interrupt::all();
    if interrupts.len() < AT_A_TIME {
        #[expect(clippy::print_stderr, reason = "no silent skip")]
        let () = eprintln!(
            "skipped: the setting of an interrupt in {} of {AT_A_TIME} rows at a time: this machine has {} \
                   whose processors may be written and are not only {WANTED}",
            AT_A_TIME - interrupts.len(),
            interrupts.len()
        );
    }
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            let (interrupt, next, failures) = (interrupts.pop(), &next, &failures);
            scope.spawn(move || {
                loop {
                    let case = next.lock().unwrap().next();
                    let Some((state, end, expected)) = case else { break };
                    if let Err(text) = try_out(state, end, expected, interrupt.as_ref()) {
                        failures.lock().unwrap().push(format!("{state}, {end}: {text}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn try_out(state: &str, end: &str, expected: &str, interrupt: Option<&Interrupt>) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let state_folder = folder.path().join("state");
    fs::create_dir(&state_folder).unwrap();
    plan(&folder.path().join("plan.json"), interrupt);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", SCRIPT]);
    command
        .env("PROGRAM", program())
        .env("FOLDER", &state_folder)
        .env("CLEARSTREAM_PLANS", state_folder.join("plans"))
        .env("PLAN", folder.path().join("plan.json"))
        .env("OUT", folder.path().join("out"))
        .env("INTERRUPT", interrupt.map_or("", |interrupt| &interrupt.number))
        .envs([("STATE", state), ("END", end), ("EXPECTED", expected)])
        .env_remove("SSH_CONNECTION")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let run = finish(command.spawn().unwrap(), Duration::from_secs(120));
    if let Some(Interrupt { number, before, .. }) = interrupt {
        // A change that was kept is of its namespaces but for this.
        fs::write(affinity(number), before).unwrap();
    }
    if run.code() == 0 { Ok(()) } else { Err(format!("{}{}", run.stdout, run.stderr)) }
}
