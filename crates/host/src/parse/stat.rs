//! `/proc/stat`: time of each processing unit (proc_stat(5)), and
//! `/proc/net/dev`: counters of each interface.

use std::collections::BTreeMap;

use clearstream_schema::counters::InterfaceCounters;

use super::ParseError;

/// Nanoseconds of one clock tick. `USER_HZ`, the unit of `/proc/stat`, is
/// 100 on every architecture this program runs on, whatever the kernel's HZ.
const TICK_NS: u64 = 10_000_000;

/// Time of one processing unit since boot, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoreTime {
    /// Core number.
    pub core: u32,
    /// User and nice (guest time is part of both already).
    pub user_ns: u64,
    /// System.
    pub system_ns: u64,
    /// Idle and I/O wait.
    pub idle_ns: u64,
    /// Hardware interrupts.
    pub irq_ns: u64,
    /// Software interrupts.
    pub softirq_ns: u64,
    /// Stolen by the hypervisor.
    pub steal_ns: u64,
}

/// Reads the `cpuN` lines; the sum line `cpu` and all other lines are skipped.
pub fn core_times(text: &str) -> Result<Vec<CoreTime>, ParseError> {
    let mut times = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else {
            // The cpu lines come first; `intr` after them is very long.
            if times.is_empty() {
                continue;
            }
            break;
        };
        if rest.starts_with(' ') {
            continue;
        }
        times
            .push(core_time(rest).ok_or_else(|| ParseError::new("a line such as cpu0 and 7 numbers", line))?);
    }
    if times.is_empty() {
        return Err(ParseError::new("lines cpu0, cpu1, ...", text));
    }
    Ok(times)
}

fn core_time(line: &str) -> Option<CoreTime> {
    let mut fields = line.split_ascii_whitespace();
    let core = fields.next()?.parse().ok()?;
    let mut ticks = [0u64; 8];
    let mut known = 0;
    for (slot, field) in ticks.iter_mut().zip(fields) {
        *slot = field.parse().ok()?;
        known += 1;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] =
        ticks.map(|ticks| ticks.saturating_mul(TICK_NS));
    (known >= 7).then_some(CoreTime {
        core,
        user_ns: user.saturating_add(nice),
        system_ns: system,
        idle_ns: idle.saturating_add(iowait),
        irq_ns: irq,
        softirq_ns: softirq,
        steal_ns: steal,
    })
}

/// Reads `/proc/net/dev`: two head lines, then `name: ` and 16 numbers.
pub fn interfaces(text: &str) -> Result<Vec<InterfaceCounters>, ParseError> {
    let mut interfaces = Vec::new();
    for line in text.lines().skip(2) {
        let fail = || ParseError::new("an interface name, a colon and 16 numbers", line);
        // A name may contain a colon (old aliases), the numbers never do.
        let (name, numbers) = line.rsplit_once(':').ok_or_else(fail)?;
        let mut column = [0u64; 16];
        let mut fields = numbers.split_ascii_whitespace();
        for slot in &mut column {
            *slot = fields.next().and_then(|field| field.parse().ok()).ok_or_else(fail)?;
        }
        interfaces.push(InterfaceCounters {
            name: name.trim().to_owned(),
            receive_bytes: column[0],
            receive_packet_count: column[1],
            receive_error_count: column[2],
            receive_drop_count: column[3],
            send_bytes: column[8],
            send_packet_count: column[9],
            send_error_count: column[10],
            send_drop_count: column[11],
        });
    }
    Ok(interfaces)
}

/// Reads the `TcpExt` pair of lines of `/proc/net/netstat`; counters at zero are omitted.
pub(crate) fn tcp_extended(text: &str) -> Result<BTreeMap<String, u64>, ParseError> {
    named_counters(text, "TcpExt:", "two lines TcpExt: of as many names and numbers")
}

/// Reads the `Tcp` pair of lines of `/proc/net/snmp`; counters at zero are omitted.
pub(crate) fn tcp(text: &str) -> Result<BTreeMap<String, u64>, ParseError> {
    named_counters(text, "Tcp:", "two lines Tcp: of as many names and numbers")
}

/// Two lines that begin with `prefix`: names, numbers.
fn named_counters(
    text: &str,
    prefix: &str,
    expected: &'static str,
) -> Result<BTreeMap<String, u64>, ParseError> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let fail = || ParseError::new(expected, text);
    let (names, values) = lines.next().zip(lines.next()).ok_or_else(fail)?;
    let (mut names, mut values) = (names.split_ascii_whitespace(), values.split_ascii_whitespace());
    let mut counters = BTreeMap::new();
    loop {
        match (names.next(), values.next()) {
            (Some(name), Some(value)) => {
                // A few are signed (MaxConn of RFC 4022 is -1 without a limit; vendors have more).
                let value: i64 = value.parse().map_err(|_| fail())?;
                if let Some(count) = u64::try_from(value).ok().filter(|count| *count > 0) {
                    counters.insert(name.to_owned(), count);
                }
            }
            (None, None) => return Ok(counters),
            _ => return Err(fail()),
        }
    }
}

/// Ticks in user mode of a thread: `/proc/PID/task/TID/stat`, field 14, in nanoseconds. The name in field 2
/// may contain blanks and brackets.
pub(crate) fn thread_user_ns(text: &str) -> Result<u64, ParseError> {
    let fail = || ParseError::new("52 fields with the name in brackets", text);
    let (_, rest) = text.rsplit_once(')').ok_or_else(fail)?;
    let ticks = rest.split_ascii_whitespace().nth(11).and_then(|field| field.parse::<u64>().ok());
    ticks.map(|ticks| ticks.saturating_mul(TICK_NS)).ok_or_else(fail)
}

/// CPU time and identity of a process from `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    /// Field 2, without its brackets.
    pub(crate) name: String,
    /// Fields 14 and 15: user and system time of all its threads.
    pub(crate) run_ns: u64,
    /// Field 22, which distinguishes processes with the same process id.
    pub(crate) start_ticks: u64,
    /// Field 39: core on which its first thread last ran.
    pub(crate) core: u32,
    /// Field 9 has `PF_KTHREAD`.
    pub(crate) kernel_thread: bool,
    /// Field 41 is `SCHED_IDLE`, or field 19 is 15 or more.
    pub(crate) low_priority: bool,
}

/// Reads `/proc/PID/stat`.
pub(crate) fn process(text: &str) -> Result<ProcessStat, ParseError> {
    const PF_KTHREAD: u64 = 0x0020_0000;
    const SCHED_IDLE: u64 = 5;
    const NICE: i64 = 15;
    let fail = || ParseError::new("52 fields with the name in brackets", text);
    let (head, rest) = text.rsplit_once(')').ok_or_else(fail)?;
    let (_, name) = head.split_once('(').ok_or_else(fail)?;
    // The first field of the rest is the third of the line.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied().ok_or_else(fail);
    let number = |at: usize| field(at)?.parse::<u64>().map_err(|_| fail());
    Ok(ProcessStat {
        name: name.to_owned(),
        run_ns: number(14)?.saturating_add(number(15)?).saturating_mul(TICK_NS),
        start_ticks: number(22)?,
        core: u32::try_from(number(39)?).map_err(|_| fail())?,
        kernel_thread: number(9)? & PF_KTHREAD != 0,
        low_priority: number(41)? == SCHED_IDLE || field(19)?.parse::<i64>().map_err(|_| fail())? >= NICE,
    })
}

/// Time on a core and time waiting for one, both in nanoseconds:
/// `/proc/PID/task/TID/schedstat` (sched-stats.rst).
pub(crate) fn thread_schedule(text: &str) -> Result<(u64, u64), ParseError> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
    match (fields.next().flatten(), fields.next().flatten()) {
        (Some(run_ns), Some(wait_ns)) => Ok((run_ns, wait_ns)),
        _ => Err(ParseError::new("three numbers", text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field numbers of proc_pid_stat(5), each with its own number as value.
    #[test]
    fn reads_a_process_by_the_field_numbers_of_the_manual() {
        let line = |policy: u64, nice: i64, flags: u64| {
            let mut fields: Vec<String> = (3..=52).map(|field: u64| field.to_string()).collect();
            fields[38] = policy.to_string();
            fields[16] = nice.to_string();
            fields[6] = flags.to_string();
            format!("77 (a) b (c)) {}", fields.join(" "))
        };
        let hog = process(&line(0, 0, 4_194_304)).unwrap();
        assert_eq!(hog.name, "a) b (c)");
        assert_eq!((hog.run_ns, hog.start_ticks, hog.core), (29 * 10_000_000, 22, 39));
        assert!(!hog.kernel_thread && !hog.low_priority);
        assert!(process(&line(5, 0, 0)).unwrap().low_priority, "SCHED_IDLE");
        assert!(process(&line(0, 19, 0)).unwrap().low_priority);
        assert!(process(&line(0, -5, 69_238_880)).unwrap().kernel_thread, "ksoftirqd's flags");
        assert!(process("77 (short) R 1 2").is_err() && process("").is_err());
    }

    /// The sample of proc_stat(5), with a second core.
    #[test]
    fn reads_times_in_nanoseconds() {
        let text = "cpu  20 0 0 0 0 0 0 0 0 0\n\
                    cpu0 10132153 290696 3084719 46828483 16683 5 25195 7 175628 0\n\
                    cpu3 1 2 3 4 5 6 7\nintr 114930548 113199788\nctxt 1990473\ncpu9 garbage";
        let times = core_times(text).unwrap();
        assert_eq!(times.len(), 2);
        assert_eq!(times[0].user_ns, (10_132_153 + 290_696) * 10_000_000);
        assert_eq!(times[0].softirq_ns, 251_950_000_000);
        assert_eq!(times[0].steal_ns, 70_000_000);
        assert_eq!((times[1].core, times[1].idle_ns, times[1].steal_ns), (3, 90_000_000, 0));
        for text in ["", "cpu0 1 2", "cpu0 a b c d e f g", "cpuX 1 2 3 4 5 6 7"] {
            assert!(core_times(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_interfaces_with_dots_and_without_space_after_the_colon() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n    \
                    lo: 2776770   11307    0    0    0     0          0         0  2776770   11307    0    0    0     0       0          0\n\
                    eth0.7:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let interfaces = interfaces(text).unwrap();
        assert_eq!(interfaces[0].receive_bytes, 2_776_770);
        assert_eq!(interfaces[1].name, "eth0.7");
        assert_eq!((interfaces[1].receive_drop_count, interfaces[1].send_drop_count), (4, 12));
        assert!(super::interfaces("a\nb\neth0: 1 2 3").is_err());
    }

    /// The samples of proc_pid_stat(5) and sched-stats.rst, in their format.
    #[test]
    fn reads_counters_of_tcp_and_times_of_threads() {
        let text =
            "TcpExt: SyncookiesSent PruneCalled TCPMemoryPressures\nTcpExt: 0 7 2\nIpExt: A\nIpExt: 1\n";
        let counters = tcp_extended(text).unwrap();
        assert_eq!(counters.len(), 2);
        assert_eq!((counters["PruneCalled"], counters["TCPMemoryPressures"]), (7, 2));
        for text in ["", "TcpExt: A B\nTcpExt: 1\n", "TcpExt: A\n", "TcpExt: A\nTcpExt: x\n"] {
            assert!(tcp_extended(text).is_err(), "{text}");
        }
        let text = "77 (flow) 0 (send)) R 1 77 77 0 -1 4194304 100 0 0 0 25 12 0 0 20 0 1 0 5 6 7";
        assert_eq!(thread_user_ns(text).unwrap(), 250_000_000);
        assert!(thread_user_ns("77 (x").is_err());
        assert_eq!(thread_schedule("123456 789 10\n").unwrap(), (123_456, 789));
        assert!(thread_schedule("123456").is_err());
    }
}
