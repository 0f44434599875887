//! Child processes that end with their parent, or that outlive it without inherited descriptors, and the
//! host's name.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, id},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes the child of `command` die with the thread that starts it, and leaves Ctrl-C, hangups and requests
/// to terminate to the parent.
///
/// `PR_SET_PDEATHSIG` fires when the *thread* that forked ends, not the process
/// (prctl(2)), so start the child from a thread that lives as long as the child
/// should. The setting is lost when the child runs a set-user-ID program.
///
/// SIGINT, SIGHUP and SIGTERM are ignored in the child (kept over `exec`): a terminal sends the first two to
/// the whole foreground group, timeout(1) and service managers the last, and the controller then ends its
/// agents gracefully. ssh(1) leaves ignored ones ignored, so password prompts still work, unlike in a separate
/// process group.
pub fn bind_child_to_parent(command: &mut Command) {
    end_with_parent(command);
    let ignore = || {
        for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM] {
            // SAFETY: signal(2) is async-signal-safe and takes plain integers.
            if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure calls async-signal-safe functions only and holds nothing.
    unsafe {
        command.pre_exec(ignore);
    }
}

/// Lets this process have `needed` open files, as far as its hard limit goes (getrlimit(2)): what finds none left then says so.
pub fn allow_files(needed: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let most = limit.maximum.map_or(needed, |maximum| needed.min(maximum));
        // Never above the hard limit, so that it is not refused.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    }
}

/// As [`bind_child_to_parent`], but signals keep their effect on the child.
pub fn end_with_parent(command: &mut Command) {
    let parent = id();
    let setup = move || {
        let raw_parent = parent as libc::pid_t;
        // SAFETY: prctl and getppid are async-signal-safe system calls
        // that take plain integers; nothing is allocated between fork and exec.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before prctl took effect. Zero is a
            // parent outside of the PID namespace that we are in.
            if !matches!(libc::getppid(), ppid if ppid == raw_parent || ppid == 0) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        Ok(())
    };
    // SAFETY: the closure calls async-signal-safe functions only and holds a
    // copied integer.
    unsafe {
        command.pre_exec(setup);
    }
}

/// Lets SIGALRM end a system call that waits, with `EINTR`, and have no other effect: without `SA_RESTART`, which handlers
/// of libraries set, and which a wait for a lock then goes on after (signal(7)).
///
/// # Errors
/// Those of sigaction(2).
pub fn let_alarm_interrupt() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all bytes zero is a value of this structure: no flags, no signals masked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler lives as long as the program and does nothing; the old action is not asked for.
    let result = unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Keeps all descriptors except the standard three from the child of `command`, for a process that outlives
/// its parent: inherited ones (a lock of flock(1), the pipe of a shell) would stay open as long as that
/// process.
pub fn keep_descriptors_from(command: &mut Command) {
    // SAFETY: the function makes system calls with integers and allocates nothing.
    unsafe {
        command.pre_exec(close_on_exec_from_three);
    }
}

/// Marks the descriptors, for exec to close: closing them here would close the
/// pipe by which a failed exec is reported.
fn close_on_exec_from_three() -> io::Result<()> {
    const FIRST: libc::c_int = 3;
    // SAFETY: plain system calls with integers, and a local for their result.
    unsafe {
        if libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0 {
            return Ok(());
        }
        // Linux before 5.11 lacks the call or the flag (close_range(2)).
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        let end = libc::c_int::try_from(limit.rlim_cur).unwrap_or(libc::c_int::MAX);
        for descriptor in FIRST..end {
            // Most are not open, which is fine.
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
    Ok(())
}

/// Whether this process ignores a signal, as nohup(1) arranges for SIGHUP.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: sigaction(2) with no new action reads the current one into a local.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut present) == 0
            && present.sa_sigaction == libc::SIG_IGN
    }
}

/// Host name of this UTS namespace.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Release of the running kernel, as printed by `uname -r`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_release_matches_the_kernel() {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("procfs");
        assert_eq!(kernel_release(), kernel.trim());
    }

    #[test]
    fn host_name_matches_the_kernel() {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("procfs");
        assert_eq!(host_name(), kernel.trim());
    }

    #[test]
    fn child_ends_with_the_thread_that_started_it() {
        let mut child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("600");
            bind_child_to_parent(&mut command);
            command.spawn().expect("sleep starts")
        })
        .join()
        .expect("thread ends");
        let status = child.wait().expect("child is ours");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }

    #[test]
    fn child_inherits_only_the_standard_descriptors() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::empty()).expect("pipe");
        let mut command = Command::new("ls");
        command.arg("/proc/self/fd");
        let inherited = command.output().expect("ls runs").stdout;
        let open = |output: &[u8]| String::from_utf8_lossy(output).lines().count();
        keep_descriptors_from(&mut command);
        let kept = command.output().expect("ls runs").stdout;
        // The fourth is the directory that ls reads.
        assert_eq!(open(&kept), 4, "{}", String::from_utf8_lossy(&kept));
        assert!(open(&inherited) >= 6, "{}", String::from_utf8_lossy(&inherited));
        drop((reader, writer));
        let error = keep_and_spawn("/nonexistent/program").expect_err("no such program");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    fn keep_and_spawn(program: &str) -> io::Result<std::process::Child> {
        let mut command = Command::new(program);
        keep_descriptors_from(&mut command);
        command.spawn()
    }

    #[test]
    fn child_ignores_the_signals_of_its_group() {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -INT $$; kill -HUP $$; kill -TERM $$; echo alive"]);
        bind_child_to_parent(&mut command);
        let output = command.output().expect("sh runs");
        assert_eq!(output.stdout, b"alive\n");
    }
}
