//! Network, mount and UTS namespaces: a child process that holds them, threads and commands that enter them.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::Command,
};

use rustix::{
    fs::{Mode, OFlags},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space},
};

use crate::mount;

/// A child process that only keeps three new namespaces alive.
///
/// It is killed with the thread that started it (`PR_SET_PDEATHSIG`), so that the namespaces always end with
/// it. Dropping the value kills it.
#[derive(Debug)]
pub struct Holder {
    pid: libc::pid_t,
}

impl Holder {
    /// Starts a holder of a new network, mount and UTS namespace, and returns
    /// when they exist. Needs `CAP_SYS_ADMIN`.
    ///
    /// Call it from a thread that lives as long as the namespaces should.
    pub fn start() -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let parent = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: the child calls nothing but async-signal-safe system calls
        // (no allocation, no lock) and never returns, so it is sound to fork
        // here whatever other threads were doing.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => hold(parent, writer.as_raw_fd()),
            pid => {
                drop(writer);
                let holder = Self { pid };
                let mut status = [0u8; 4];
                let read = rustix::io::read(&reader, &mut status)?;
                match (read, i32::from_ne_bytes(status)) {
                    (4, 0) => Ok(holder),
                    (4, errno) => Err(io::Error::from_raw_os_error(errno)),
                    _ => Err(io::Error::other("the process that holds the namespaces died at its start")),
                }
            }
        }
    }

    /// Process id, as seen under `/proc`.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // SAFETY: the child is ours and not yet waited for, so its number
        // cannot have been given to another process.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// Main function of a holder. Only async-signal-safe calls.
fn hold(parent: libc::pid_t, status: i32) -> ! {
    // SAFETY: plain system calls with integer arguments, and one write from a
    // local of four bytes. Every other descriptor is closed so that no lock,
    // pipe or terminal of the parent is held open.
    unsafe {
        let mut errno: i32 = 0;
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
            || libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWUTS) != 0
        {
            errno = *libc::__errno_location();
        }
        // The parent may have ended before prctl took effect.
        if libc::getppid() != parent {
            libc::_exit(1);
        }
        libc::prctl(libc::PR_SET_NAME, c"lab-host".as_ptr());
        libc::write(status, (&raw const errno).cast(), 4);
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        if errno != 0 {
            libc::_exit(1);
        }
        loop {
            libc::pause();
        }
    }
}

/// Open handles on the namespaces of a host, and on its root directory in them.
#[derive(Debug)]
pub struct NamespaceSet {
    net: OwnedFd,
    mount: OwnedFd,
    uts: OwnedFd,
    root: OwnedFd,
}

impl NamespaceSet {
    /// The namespaces of a process.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let open = |kind: &str| File::open(format!("/proc/{pid}/ns/{kind}")).map(OwnedFd::from);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty())?;
        Ok(Self { net: open("net")?, mount: open("mnt")?, uts: open("uts")?, root })
    }

    /// The network namespace, for `IFLA_NET_NS_FD`.
    pub fn net(&self) -> &OwnedFd {
        &self.net
    }

    /// Inode of the network namespace, unique while it lives.
    pub fn net_inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.net)?.st_ino)
    }

    /// Runs `work` inside the namespaces, on a separate thread; the calling thread stays outside.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// Keeps mounts that are made inside from the namespace outside, and the other way round. Propagation is of mounts,
    /// and the root directory of a process in a chroot need not be one: it begins at the root of the namespace.
    pub fn keep_mounts_apart(&self) -> io::Result<()> {
        on_a_thread(|| {
            move_into_link_name_space(self.mount.as_fd(), Some(LinkNameSpaceType::Mount))?;
            mount::make_private()
        })
    }

    /// Makes `command` start inside the namespaces, in the directory in which it would have started otherwise
    /// (the root directory where that does not exist).
    pub fn enter_with(self, command: &mut Command) -> io::Result<()> {
        let directory = match command.get_current_dir() {
            Some(directory) => directory.to_owned(),
            None => std::env::current_dir().unwrap_or_else(|_| Path::new("/").to_owned()),
        };
        let directory = CString::new(directory.into_os_string().into_encoded_bytes())?;
        let setup = move || {
            self.enter()?;
            if rustix::process::chdir(&directory).is_err() {
                rustix::process::chdir(c"/")?;
            }
            Ok(())
        };
        // SAFETY: setns and chdir are plain system calls; nothing is allocated
        // between fork and exec, and what the closure holds was made before.
        unsafe {
            command.pre_exec(setup);
        }
        Ok(())
    }

    fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.net.as_fd(), Some(LinkNameSpaceType::Network))?;
        move_into_link_name_space(self.uts.as_fd(), Some(LinkNameSpaceType::HostNameAndNISDomainName))?;
        move_into_link_name_space(self.mount.as_fd(), Some(LinkNameSpaceType::Mount))?;
        // setns(2) leaves a chroot: it moves to the root of the namespace, which need not be that of the process.
        rustix::process::fchdir(&self.root)?;
        rustix::process::chroot(c".")?;
        Ok(())
    }
}

/// Runs `work` on a thread that may enter a mount namespace.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // SAFETY: FS only gives this thread its own working directory
            // and root, which setns(2) requires before it changes the
            // mount namespace; file descriptors stay shared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS)? };
            work()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_command_runs_inside_and_keeps_its_directory() {
        let holder = Holder::start().expect("namespaces");
        let set = NamespaceSet::of_process(holder.pid()).expect("proc");
        let inode = set.net_inode().expect("inode");
        let own = NamespaceSet::of_process(std::process::id()).expect("proc").net_inode().expect("inode");
        assert_ne!(inode, own);
        let mut command = Command::new("sh");
        command.args(["-c", "readlink /proc/self/ns/net; pwd"]).current_dir("/usr");
        set.enter_with(&mut command).expect("directory");
        let output = command.output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("net:[{inode}]\n/usr\n"));
    }

    #[test]
    fn root_thread_runs_inside_and_the_caller_stays_outside() {
        let holder = Holder::start().expect("namespaces");
        let set = NamespaceSet::of_process(holder.pid()).expect("proc");
        let before = std::fs::read_link("/proc/thread-self/ns/net").expect("proc");
        let inside =
            set.run(|| std::fs::read_link("/proc/thread-self/ns/net")).expect("entered").expect("proc");
        assert_eq!(inside.to_string_lossy(), format!("net:[{}]", set.net_inode().expect("inode")));
        assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").expect("proc"), before);
    }

    #[test]
    fn root_holder_ends_with_the_thread_that_started_it() {
        let pid = std::thread::spawn(|| {
            let holder = Holder::start().expect("namespaces");
            let pid = holder.pid();
            std::mem::forget(holder);
            pid
        })
        .join()
        .expect("thread ends");
        let pid = rustix::process::Pid::from_raw(pid.cast_signed());
        let status = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).expect("our child");
        assert_eq!(status.and_then(|(_, status)| status.terminating_signal()), Some(libc::SIGKILL));
    }
}
