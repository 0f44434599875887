//! Agent part: the folder of the checks, and the processes that carry out operations in it.

use std::{collections::BTreeMap, io, path::Path, process::Command, time::Duration};

use clearstream_control::{CallContext, Registration, Service};
use clearstream_schema::control::{Failure, FailureKind};
use rustix::process::Signal;

use super::{
    calls::{Act, Acted, Enter, Entered, Leave, Left, Operation, Order},
    folder::Place,
    process::Process,
};
use crate::{folder::Remains, guard::Guard, mount::Mount};

/// Time after which an operation is pending: well within that of a reply.
const MOMENT: Duration = Duration::from_secs(2);
/// Maximum number of processes.
const MAX_PROCESSES: usize = 256;

/// Commands of this program that start other processes.
#[derive(Debug, Clone, Copy)]
pub struct ProcessCommands {
    /// One that calls [`crate::guard::guard`].
    pub guard: fn() -> io::Result<Command>,
    /// One that calls [`super::serve_operations`].
    pub operations: fn() -> io::Result<Command>,
}

/// Has operations of one controller carried out in one folder. Dropping it removes what they made, and the folder where
/// it created it; where this process is killed, another one does.
#[derive(Debug)]
pub struct SemanticsAgent {
    commands: ProcessCommands,
    // Dropped first: an open file may keep the folder from being removed.
    processes: BTreeMap<u32, Process>,
    last: u32,
    entered: Option<Enter>,
    place: Option<Place>,
    guard: Option<Guard>,
}

impl Service for SemanticsAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::enter).on(Self::act).on(|agent, Leave { moved }, _| agent.leave(&moved));
    }
}

impl SemanticsAgent {
    /// One without a folder.
    pub fn new(commands: ProcessCommands) -> Self {
        Self { commands, processes: BTreeMap::new(), last: 0, entered: None, place: None, guard: None }
    }

    fn enter(&mut self, call: Enter, _: &CallContext<'_>) -> Result<Entered, Failure> {
        self.leave(&[])?;
        let directory = Path::new(&call.directory);
        let mount = Mount::of(directory);
        let place = Place::enter(directory, &call.folder, call.create, mount.is_remote());
        let (place, left_over) = place.map_err(|error| {
            Failure::of_file(&format!("open {} in {}", call.folder, call.directory), &error)
        })?;
        let mut guard = (self.commands.guard)()
            .and_then(Guard::start)
            .map_err(|error| Failure::of_system("start the guard of the files", &error))?;
        // Without the guard what is made stays.
        let _ = place.watch(&mut guard);
        (self.guard, self.place) = (Some(guard), Some(place));
        self.entered = Some(Enter { is_alone: call.is_alone && !mount.is_remote(), ..call });
        Ok(Entered { file_system: mount.name, left_over })
    }

    fn leave(&mut self, moved: &[Vec<u8>]) -> Result<Left, Failure> {
        self.processes.clear();
        let is_creator = self.entered.take().is_none_or(|entered| entered.create);
        let mut left = Left::default();
        if let Some(mut place) = self.place.take() {
            left.moved = place.moved();
            match place.leave(moved) {
                Ok(()) => {}
                Err(Remains::Others(message)) => left.remains = Some(message),
                // What another agent cannot remove, the one that created the folder tries, and says.
                Err(Remains::Own(_)) if !is_creator => {}
                Err(Remains::Own(message)) => return Err(Failure { kind: FailureKind::File, message }),
            }
        }
        if let Some(guard) = self.guard.take() {
            guard.release();
        }
        Ok(left)
    }

    fn act(&mut self, call: Act, _: &CallContext<'_>) -> Result<Acted, Failure> {
        if matches!(call.order, Order::Start) {
            return self.start();
        }
        let process = self.processes.get_mut(&call.process);
        let process = process.ok_or_else(|| invalid(format!("there is no process {}", call.process)))?;
        Ok(match call.order {
            Order::Do(operation) => process.act(&operation, MOMENT),
            Order::Begin(operation) => {
                process.begin(&operation);
                Acted::default()
            }
            Order::Await { timeout_ms } => process.wait(Duration::from_millis(timeout_ms).min(MOMENT)),
            Order::Interrupt => {
                process.signal(Signal::ALARM);
                Acted::default()
            }
            Order::Kill | Order::Start => {
                self.processes.remove(&call.process);
                Acted::default()
            }
        })
    }

    fn start(&mut self) -> Result<Acted, Failure> {
        let place = self.entered.as_ref().zip(self.place.as_ref());
        let (entered, place) =
            place.ok_or_else(|| invalid("no folder is open here: call semantics-enter first"))?;
        if self.processes.len() >= MAX_PROCESSES {
            return Err(invalid("too many processes of the checks"));
        }
        let started =
            (self.commands.operations)().and_then(|command| Process::start(command, place.journal()?, None));
        let mut process =
            started.map_err(|error| Failure::of_system("start a process of the checks", &error))?;
        let enter = Operation::Enter {
            directory: entered.directory.clone(),
            folder: entered.folder.clone(),
            is_alone: entered.is_alone,
        };
        process.begin(&enter);
        self.last += 1;
        let id = i64::from(process.id());
        self.processes.insert(self.last, process);
        Ok(Acted { number: self.last.into(), values: vec![id], pending: true, ..Acted::default() })
    }
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure { kind: FailureKind::Invalid, message: message.into() }
}
