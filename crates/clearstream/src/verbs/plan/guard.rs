//! The guard of this host's routing under which plans are carried out, and the
//! process that watches over it.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::net::UnixDatagram,
    process::Command,
    sync::{Arc, atomic::AtomicBool},
};

use clearstream_plan::{Duty, Guarded, Options};
use clearstream_route::guard::RoutingGuard;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::{
    consts::{SIGALRM, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ},
    flag,
};

use crate::exit::{CommandError, cannot};

const SSH_CONNECTION: &str = "SSH_CONNECTION";
/// Where the guardian says why something is not restored yet: syslog(3), RFC 3164.
const LOG_SOCKET: &str = "/dev/log";
/// Facility daemon, severity error.
const LOG_PRIORITY: u32 = 3 << 3 | 3;
/// The last of all processes that the kernel kills for want of memory, but not never: its
/// own faults have to end (proc_pid_oom_score_adj(5)).
const OOM_SCORE: &str = "-900";

/// For an operator, local or over ssh.
pub(super) fn guarded() -> Guarded {
    let session = std::env::var(SSH_CONNECTION).ok();
    Guarded::new(RoutingGuard::of_operator(session.as_deref()), guardian)
}

/// For an agent, whose controller can neither force nor confirm.
pub fn guarded_for_agent() -> Guarded {
    let session = std::env::var(SSH_CONNECTION).ok();
    Guarded::new(RoutingGuard::of_agent(session.as_deref()), guardian)
}

/// This program, as the guardian.
fn guardian() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["plan", "guard"]);
    Ok(command)
}

/// Guardian process: recovers the journal of the command that started it, and
/// reverts what is not confirmed in time.
#[derive(Debug, clap::Args)]
pub struct GuardArgs {}

impl GuardArgs {
    /// Runs it, in a session of its own, so that no signal of a terminal or of a
    /// closed ssh session reaches it.
    pub fn run(self) -> Result<(), CommandError> {
        let options = Options::live()?;
        // Fails only for the leader of a group, which then is without terminal already.
        let _ = rustix::process::setsid();
        shed_what_was_inherited();
        let told_to_end = Arc::new(AtomicBool::new(false));
        flag::register(SIGTERM, Arc::clone(&told_to_end)).map_err(cannot("handle signals"))?;
        // None of these is a reason to leave a change as it is.
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ] {
            flag::register(signal, Arc::new(AtomicBool::new(false))).map_err(cannot("handle signals"))?;
        }
        let duty = Duty {
            reports: io::stdin(),
            answer: &|word| drop(writeln!(io::stdout(), "{word}")),
            told_to_end: &told_to_end,
            problem: &log,
        };
        duty.run(&options);
        Ok(())
    }
}

/// A guardian lives in circumstances that its command did not choose for it.
fn shed_what_was_inherited() {
    shed_limits();
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    // Not one that is to be unmounted.
    let _ = std::env::set_current_dir("/");
}

/// What restores is not kept from it by the limits of a shell or of a service.
pub(super) fn shed_limits() {
    let limits =
        [Resource::As, Resource::Cpu, Resource::Data, Resource::Fsize, Resource::Memlock, Resource::Nofile];
    for limit in limits {
        let Rlimit { maximum, .. } = getrlimit(limit);
        // Root can lift both; anybody the first up to the second (setrlimit(2)).
        let none = Rlimit { current: None, maximum: None };
        let more = Rlimit { current: Some(1024), maximum: Some(1024) };
        let up_to = Rlimit { current: maximum, maximum };
        let wanted = if limit == Resource::Nofile { more } else { none };
        if maximum.is_some_and(|maximum| wanted.maximum.is_none_or(|wanted| maximum < wanted)) {
            let _ = setrlimit(limit, wanted).or_else(|_| setrlimit(limit, up_to));
        } else {
            let _ = setrlimit(limit, up_to);
        }
    }
}

/// To the system's log: the guardian has no terminal.
fn log(text: &str) {
    let Ok(socket) = UnixDatagram::unbound() else { return };
    // A log that is full does not hold a restore.
    let _ = socket.set_nonblocking(true);
    let line = format!("<{LOG_PRIORITY}>clearstream[{}]: {text}", std::process::id());
    let _ = socket.send_to(line.as_bytes(), LOG_SOCKET);
}
