//! Child processes that do not outlive us, and our host's name.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, id},
};

/// Makes the child of `command` die with the thread that starts it, and leaves
/// Ctrl-C to us.
///
/// `PR_SET_PDEATHSIG` fires when the *thread* that forked ends, not the process
/// (prctl(2)), so start the child from a thread that lives as long as the child
/// should. The setting is lost when the child runs a set-user-ID program.
///
/// SIGINT is ignored in the child (kept over `exec`): a terminal sends Ctrl-C
/// to the whole foreground group, and it is the controller that then ends its
/// agents in order. ssh(1) leaves an ignored SIGINT ignored, so prompts for
/// passwords still work, which they would not in a process group of its own.
pub fn bind_child_to_parent(command: &mut Command) {
    let parent = id();
    let setup = move || {
        let raw_parent = parent as libc::pid_t;
        // SAFETY: prctl, signal and getppid are async-signal-safe system calls
        // that take plain integers; nothing is allocated between fork and exec.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::signal(libc::SIGINT, libc::SIG_IGN) == libc::SIG_ERR {
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

/// Host name of this UTS namespace.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_is_the_kernels() {
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
    fn child_ignores_the_interrupt_of_the_terminal() {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -INT $$; echo alive"]);
        bind_child_to_parent(&mut command);
        let output = command.output().expect("sh runs");
        assert_eq!(output.stdout, b"alive\n");
    }
}
