//! CPU time of the host's processes between two scans of `/proc`: other load on the cores while a flow runs.

use std::{collections::HashMap, time::Duration, time::Instant};

use clearstream_schema::counters::{ProcessKind, ProcessLoad, ProcessTime};

use crate::{
    parse::stat::{self, ProcessStat},
    root::HostRoot,
};

/// Time between two scans: a scan costs some microseconds for each process.
const INTERVAL: Duration = Duration::from_secs(1);
/// A scan takes at most this fraction of the time between scans.
const COST_DIVISOR: u32 = 50;
/// Processes reported by name.
const NAMED_MAX: usize = 8;
/// Minimum fraction of a core for a process to be reported by name.
const NAMED_DIVISOR: u64 = 100;

/// Scans `/proc` about once a second.
#[derive(Debug)]
pub struct ProcessScanner {
    root: HostRoot,
    last: Option<Scan>,
}

#[derive(Debug)]
struct Scan {
    at: Instant,
    cost: Duration,
    processes: HashMap<u32, ProcessStat>,
}

impl ProcessScanner {
    /// A scanner that has not scanned yet.
    pub fn new(root: &HostRoot) -> Self {
        Self { root: root.clone(), last: None }
    }

    /// Restarts: CPU time until now is not counted.
    pub fn restart(&mut self) {
        self.last = Some(Scan::take(&self.root));
    }

    /// CPU time since the last scan; `None` when that is less than a second ago, or when `/proc` could not be
    /// read.
    pub fn poll(&mut self) -> Option<ProcessLoad> {
        let last = self.last.as_ref()?;
        if last.at.elapsed() < INTERVAL.max(last.cost * COST_DIVISOR) {
            return None;
        }
        let now = Scan::take(&self.root);
        let load = now.since(last, &|pid| command(&self.root, pid));
        self.last = Some(now);
        load
    }
}

impl Scan {
    fn take(root: &HostRoot) -> Self {
        let at = Instant::now();
        let numbers = root.list("proc").unwrap_or_default();
        let processes = numbers
            .iter()
            .filter_map(|name| name.parse::<u32>().ok())
            .filter_map(|pid| Some((pid, root.parse(&format!("proc/{pid}/stat"), stat::process).ok()?)))
            .collect();
        Self { at, cost: at.elapsed(), processes }
    }

    /// `command` returns the arguments of a process.
    fn since(&self, earlier: &Self, command: &dyn Fn(u32) -> Vec<String>) -> Option<ProcessLoad> {
        let elapsed_ns = u64::try_from(self.at.duration_since(earlier.at).as_nanos()).ok()?;
        let mut used: Vec<(u32, &ProcessStat, u64)> = self
            .processes
            .iter()
            .map(|(pid, now)| {
                let before = earlier.processes.get(pid).filter(|then| then.start_ticks == now.start_ticks);
                (*pid, now, now.run_ns.saturating_sub(before.map_or(0, |before| before.run_ns)))
            })
            .filter(|(_, _, run_ns)| *run_ns > 0)
            .collect();
        used.sort_unstable_by_key(|(pid, _, run_ns)| (std::cmp::Reverse(*run_ns), *pid));
        let counts = |run_ns: u64| run_ns >= elapsed_ns / NAMED_DIVISOR;
        let named = used.iter().take(NAMED_MAX).take_while(|(_, _, run_ns)| counts(*run_ns)).count();
        let (named, others) = used.split_at(named);
        let remaining_run_ns = others.iter().map(|(_, _, run_ns)| *run_ns).sum();
        let processes = named.iter().map(|(pid, process, run_ns)| ProcessTime {
            pid: *pid,
            name: process.name.clone(),
            kind: kind(*pid, process, command),
            run_ns: *run_ns,
            core: process.core,
        });
        Some(ProcessLoad { elapsed_ns, processes: processes.collect(), remaining_run_ns })
    }
}

fn kind(pid: u32, process: &ProcessStat, command: &dyn Fn(u32) -> Vec<String>) -> ProcessKind {
    let packets = process.name.starts_with("ksoftirqd/") || process.name.starts_with("napi/");
    if process.kernel_thread && packets {
        return ProcessKind::PacketProcessing;
    }
    // The controller that started this agent also belongs to the flow.
    if pid == std::process::id() || pid == std::os::unix::process::parent_id() {
        return ProcessKind::Agent;
    }
    if !process.kernel_thread {
        // Arguments of this program: `clearstream agent`, `clearstream lab keep`.
        let arguments = command(pid);
        let argument = |at: usize| arguments.get(at).map_or("", String::as_str);
        let ours = std::env::current_exe().ok();
        let ours = ours.as_deref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
        let same = ours.is_some_and(|ours| argument(0).rsplit('/').next() == Some(ours));
        if same && argument(1) == "lab" {
            return ProcessKind::PathEmulation;
        }
    }
    if process.low_priority { ProcessKind::Background } else { ProcessKind::Other }
}

fn command(root: &HostRoot, pid: u32) -> Vec<String> {
    let text = root.read(&format!("proc/{pid}/cmdline")).unwrap_or_default();
    text.split('\0').take(4).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(name: &str, run_ms: u64, start_ticks: u64) -> ProcessStat {
        ProcessStat {
            name: name.to_owned(),
            run_ns: run_ms * 1_000_000,
            start_ticks,
            core: 1,
            kernel_thread: name.starts_with("ksoftirqd"),
            low_priority: name == "idle",
        }
    }

    fn scan(at: Instant, processes: &[(u32, ProcessStat)]) -> Scan {
        Scan { at, cost: Duration::ZERO, processes: processes.iter().cloned().collect() }
    }

    #[test]
    fn times_are_differences_of_the_same_process() {
        let begun = Instant::now();
        let before = scan(begun, &[(7, process("hog", 500, 1)), (8, process("reused", 900, 1))]);
        let after = scan(
            begun + Duration::from_secs(1),
            &[
                (7, process("hog", 1300, 1)),
                (8, process("reused", 50, 2)),
                (9, process("ksoftirqd/1", 200, 1)),
                (10, process("idle", 100, 1)),
                (11, process("little", 5, 1)),
                (std::process::id(), process("clearstream", 40, 1)),
            ],
        );
        let load = after.since(&before, &|_| Vec::new()).unwrap();
        assert_eq!((load.elapsed_ns, load.remaining_run_ns), (1_000_000_000, 5_000_000));
        let seen: Vec<_> = load
            .processes
            .iter()
            .map(|process| (process.name.as_str(), process.run_ns / 1_000_000, process.kind))
            .collect();
        assert_eq!(
            seen,
            [
                ("hog", 800, ProcessKind::Other),
                ("ksoftirqd/1", 200, ProcessKind::PacketProcessing),
                ("idle", 100, ProcessKind::Background),
                ("reused", 50, ProcessKind::Other),
                ("clearstream", 40, ProcessKind::Agent),
            ]
        );
    }

    #[test]
    fn a_lab_is_recognised_by_its_arguments() {
        let ours = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        let lab = |_| vec![ours.clone(), "lab".to_owned(), "keep".to_owned()];
        assert_eq!(kind(1, &process("x", 1, 1), &lab), ProcessKind::PathEmulation);
        let agent = |_| vec![ours.clone(), "agent".to_owned()];
        assert_eq!(kind(1, &process("x", 1, 1), &agent), ProcessKind::Other);
    }
}
