//! CPU time of one thread of this process: running, waiting for a core, in user mode.

use clearstream_schema::flow::ThreadTime;

use crate::{parse::stat, root::HostRoot};

/// Reads the CPU time of a thread of the calling process since its start. `None` when the thread has ended,
/// or the kernel has no `schedstat` (`CONFIG_SCHED_INFO`).
pub fn time(root: &HostRoot, thread: i32) -> Option<ThreadTime> {
    let folder = format!("proc/self/task/{thread}");
    let (run_ns, wait_ns) = root.parse(&format!("{folder}/schedstat"), stat::thread_schedule).ok()?;
    let user_ns = root.parse(&format!("{folder}/stat"), stat::thread_user_ns).ok()?;
    Some(ThreadTime { run_ns, wait_ns, user_ns })
}

#[cfg(test)]
mod tests {
    use std::{
        hint::black_box,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn a_thread_that_computes_runs_in_user_mode() {
        let root = HostRoot::live();
        // The first thread's id is the process id.
        let id = root.link_target("proc/thread-self").unwrap();
        let id: i32 = id.rsplit('/').next().unwrap().parse().unwrap();
        let before = time(&root, id).unwrap();
        let until = Instant::now() + Duration::from_millis(120);
        while Instant::now() < until {
            black_box((0..1000u64).fold(0, |sum, number| black_box(sum + number)));
        }
        let spent = time(&root, id).unwrap().since(&before);
        assert!(spent.run_ns + spent.wait_ns >= 100_000_000, "{spent:?}");
        assert!(spent.user_ns > 0, "{spent:?}");
        assert!(time(&root, i32::MAX).is_none());
    }
}
