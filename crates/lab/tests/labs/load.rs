//! Delay lines under load: queueing is bounded and reported, and a line that
//! cannot keep up reports that it was the limit.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use clearstream_lab::limit;
use clearstream_schema::lab::{DELAY_LINE_LIMIT_NOTICE, DelayLineStats};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

use crate::common::{Inside, Lab, pair};

/// Sends at full speed for some time; both sides in the lab.
fn flood(lab: &Lab, time: Duration) {
    let (here, there) = (Inside::of(&lab.0, "here"), Inside::of(&lab.0, "there"));
    let listener = there.run(|| TcpListener::bind("10.0.0.2:0").unwrap());
    let to = listener.local_addr().unwrap();
    let sender = std::thread::spawn(move || {
        let mut stream = here.run(|| TcpStream::connect(to).unwrap());
        let (bytes, end) = (vec![7; 1 << 20], Instant::now() + time);
        while Instant::now() < end {
            stream.write_all(&bytes).unwrap();
        }
    });
    let (mut stream, _) = listener.accept().unwrap();
    let mut buffer = vec![0; 1 << 20];
    while stream.read(&mut buffer).unwrap() > 0 {}
    sender.join().unwrap();
}

/// Pings during other work; returns the longest round trip by ping's own clock,
/// in ms.
fn ping_beside(lab: &Lab, beside: impl FnOnce()) -> f64 {
    let mut ping = Command::new("ping");
    ping.args(["-n", "-i", "0.02", "-w", "60", "10.0.0.2"]);
    let mut ping = lab.0.command("here", ping).unwrap();
    let ping = ping.stdout(Stdio::piped()).spawn().unwrap();
    beside();
    rustix::process::kill_process(Pid::from_child(&ping), rustix::process::Signal::INT).unwrap();
    let output = ping.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // iputils: rtt min/avg/max/mdev = 17.1/18.2/20.3/0.4 ms
    let summary = text.split("mdev = ").nth(1).unwrap_or_else(|| panic!("{text}"));
    summary.split('/').nth(2).unwrap().parse().unwrap()
}

/// Returns the maximum lateness reported by the line, sum of both directions,
/// in ms.
fn reported_ms(lines: &[DelayLineStats]) -> f64 {
    lines.iter().map(|line| (line.late_max_ns + line.unseen_max_ns) as f64 / 1e6).sum()
}

/// Option that makes a line copy its packets instead of holding them in the
/// kernel: a loss that hardly ever occurs.
const COPIED: &str = "loss-ratio = 0.00000001\n";

/// The queue bounds a packet's wait for any offered load on any machine: beyond
/// delay and queue there is only the lateness that the line reports.
#[test]
fn root_round_trips_under_load_are_delay_queue_and_reported_lateness() {
    // 2 x 8.5 ms, and a queue of 34 ms in front of the rate of the paper's path, and of
    // one that is not reached here.
    for (name, copied, rate) in
        [("honest-paper", "", "19Gb/s"), ("honest-held", "", "400Gb/s"), ("honest-copied", COPIED, "400Gb/s")]
    {
        let link = format!("{copied}delay = \"8.5ms\"\nrate = \"{rate}\"\nqueue = \"34ms\"\nmtu = 9000");
        let mut file = pair(name, &link);
        for host in &mut file.hosts {
            host.congestion_control = Some("cubic".to_owned());
            for key in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
                host.sysctls.insert(key.to_owned(), "4096 131072 268435456".to_owned());
            }
        }
        let lab = Lab::up(&file).unwrap();
        let longest_ms = ping_beside(&lab, || flood(&lab, Duration::from_secs(2)));
        let lines = lab.0.delay_line_stats().unwrap();
        let bound_ms = 17.0 + 34.0 + reported_ms(&lines);
        assert!(longest_ms <= bound_ms, "{name}: {longest_ms} ms, {bound_ms} ms explained: {lines:?}");
    }
}

/// Uses most of core 0 at a higher priority than all other threads.
struct Hog(Child);

impl Hog {
    fn start() -> Self {
        // 20 ms of work, 5 ms of sleep: below the kernel's limit for real-time
        // threads.
        let script = "import time\nwhile True:\n e = time.monotonic() + 0.02\n while time.monotonic() < e: pass\n time.sleep(0.005)";
        // It exits with the thread of this test, also when that is killed.
        let arguments =
            ["--pdeathsig", "KILL", "chrt", "-f", "50", "taskset", "-c", "0", "python3", "-c", script];
        Self(Command::new("setpriv").args(arguments).spawn().unwrap())
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the thread of the lab's delay line.
fn line_thread(lab: &Lab) -> Pid {
    let tasks = PathBuf::from(format!("/proc/{}/task", lab.0.keeper_pid()));
    let mut threads = fs::read_dir(tasks).unwrap().filter_map(Result::ok);
    let found =
        threads.find(|task| fs::read_to_string(task.path().join("comm")).unwrap().trim() == "delay-line");
    Pid::from_raw(found.unwrap().file_name().to_str().unwrap().parse().unwrap()).unwrap()
}

#[test]
fn root_a_line_that_cannot_keep_up_reports_that_it_was_the_limit() {
    for (name, copied) in [("slow-held", ""), ("slow-copied", COPIED)] {
        let lab = Lab::up(&pair(name, &format!("{copied}delay = \"1ms\""))).unwrap();
        let idle = Duration::from_millis(300);
        // A few packets only: no limit.
        ping_beside(&lab, || std::thread::sleep(idle));
        let lines = lab.0.delay_line_stats().unwrap();
        assert!(lines.iter().all(|line| line.passed_count > 0), "{lines:?}");
        assert_eq!(limit::notice(&lines), None, "{name}: {lines:?}");

        let mut only = CpuSet::new();
        only.set(0);
        sched_setaffinity(Some(line_thread(&lab)), &only).unwrap();
        lab.0.reset_delay_line_stats().unwrap();
        let hog = Hog::start();
        let longest_ms = ping_beside(&lab, || flood(&lab, Duration::from_secs(1)));
        drop(hog);
        let lines = lab.0.delay_line_stats().unwrap();
        let notice = limit::notice(&lines).unwrap_or_else(|| panic!("{name}: {longest_ms} ms, {lines:?}"));
        assert_eq!(notice.id, DELAY_LINE_LIMIT_NOTICE);
        assert!(notice.message.contains("not the path, was the limit"), "{}", notice.message);
        // A core preempted for 20 ms at a time shows in the reported lateness
        // of the line.
        assert!(reported_ms(&lines) >= 5.0, "{name}: {lines:?}");
        assert!(longest_ms <= 2.0 + 50.0 + reported_ms(&lines) + 25.0, "{name}: {longest_ms} ms: {lines:?}");
    }
}
