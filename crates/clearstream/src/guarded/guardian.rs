//! A process that outlives the command: if that one dies while it changes
//! routes, the guardian puts them back, and it puts back what nobody confirmed.

use std::{
    io::{self, BufRead as _, Write as _},
    process::{ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use clearstream_plan::{Options, expire, is_under_test, recover, trials};
use clearstream_sys::process::keep_descriptors_from;

use crate::exit::CommandError;

/// Between two looks at what waits for confirmation.
const LOOK: Duration = Duration::from_millis(200);
/// Between two tries when another plan is being applied.
const AGAIN: Duration = Duration::from_secs(1);
/// Times that a change whose tester died is looked at: the kernel may release its
/// lock after its pipe.
const RELEASE_COUNT: u32 = 50;
const DONE: &str = "done";

/// The end of the pipe that the command holds: the guardian acts when it closes
/// before [`Guardian::done`].
#[derive(Debug)]
pub(super) struct Guardian {
    pipe: Arc<Mutex<ChildStdin>>,
}

/// Tells the guardian what is being done.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    pipe: Arc<Mutex<ChildStdin>>,
}

impl Guardian {
    /// Starts it in a session of its own, so that no signal of a terminal or of
    /// a closed ssh session reaches it.
    pub(super) fn start() -> Result<Self, CommandError> {
        let failed = |source| CommandError::File {
            what: "start the guardian".to_owned(),
            path: "/proc/self/exe".into(),
            source,
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["route", "guard"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It may stay for as long as nobody confirms.
        keep_descriptors_from(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let pipe = child.stdin.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        let guardian = Self { pipe: Arc::new(Mutex::new(pipe)) };
        // Whoever outlives the other is waited for by nobody (init takes it).
        drop(child);
        Ok(guardian)
    }

    /// For what happens while a plan is applied.
    pub(super) fn teller(&self) -> Teller {
        Teller { pipe: Arc::clone(&self.pipe) }
    }

    /// Nothing is half done any more.
    pub(super) fn done(self) {
        say(&self.pipe, DONE);
    }
}

impl Teller {
    /// The journal is on disk; the first change, or the first one back, comes next.
    pub(super) fn journal(&self, name: &str) {
        say(&self.pipe, name);
    }
}

fn say(pipe: &Mutex<ChildStdin>, line: &str) {
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    // A guardian that died guards nothing, and the journal is there all the same.
    let _ = writeln!(pipe, "{line}").and_then(|()| pipe.flush());
}

/// Waits for the command that started it; ends what it left half done, and puts
/// back what is not confirmed in time. Started by the command itself.
#[derive(Debug, clap::Args)]
pub struct GuardArgs {}

impl GuardArgs {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        // Fails only for the leader of a group, which then is without terminal already.
        let _ = rustix::process::setsid();
        let options = Options::live()?;
        let (mut journal, mut is_done) = (None, false);
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match line.as_str() {
                DONE => is_done = true,
                name => journal = Some(name.to_owned()),
            }
        }
        // Without a journal nothing was begun: what an earlier command left is its own
        // guardian's, or the operator's, and must not change behind his back.
        if !is_done && journal.is_some() {
            until_free(|| recover(&options))?;
            for _ in 0..RELEASE_COUNT {
                if !journal.as_deref().is_some_and(|journal| is_under_test(journal, &options)) {
                    break;
                }
                thread::sleep(LOOK);
                until_free(|| recover(&options))?;
            }
        }
        let Some(journal) = journal else { return Ok(()) };
        while let Some(trial) = trials(&options)?.into_iter().find(|trial| trial.journal == journal) {
            if trial.left.is_zero() {
                until_free(|| expire(&journal, &options))?;
                return Ok(());
            }
            thread::sleep(trial.left.min(LOOK));
        }
        Ok(())
    }
}

/// Does it again while another process holds the journals.
fn until_free<T>(
    mut work: impl FnMut() -> Result<T, clearstream_plan::PlanError>,
) -> Result<T, clearstream_plan::PlanError> {
    loop {
        match work() {
            Err(clearstream_plan::PlanError::Busy { .. }) => thread::sleep(AGAIN),
            other => return other,
        }
    }
}
