//! Ranks as processes of an MPI job on several hosts: `mpirun` starts this program there as
//! `clearstream storage stream --mpi`, and the events of rank 0 are the results.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use clearstream_lab::RunningLab;
use clearstream_mpirun::{Ending, JobConfig, JobError, Line, Placement};
use clearstream_schema::{
    ExitCode, TimeSpan,
    control::{Failure, FailureKind},
    event::{ErrorDocument, Event, EventKind, LIVE_STATE},
    storage::host_names,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{StorageError, live::OnLive};

/// Maximum time without a line of rank 0, which has one each second.
const SILENCE: Duration = Duration::from_secs(30);
/// Time of ranks to end by themselves when theirs is over.
const END_TIME: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Where the controller starts a job.
#[derive(Debug, Clone, Copy)]
pub struct JobPlace<'a> {
    /// Lab of the hosts.
    pub lab: Option<&'a RunningLab>,
    /// This program.
    pub program: &'a Path,
}

/// What a job needs of the options.
pub(crate) struct JobOptions<'a> {
    /// Command: `stream`, or `metadata`.
    pub(crate) verb: &'static str,
    pub(crate) directories: Vec<&'a str>,
    pub(crate) hosts: &'a str,
    pub(crate) tasks: u32,
    pub(crate) mpirun: Option<&'a str>,
}

/// Options of a job that the ranks' command line does not have: `mpirun` has them, or they are placed.
const OF_CONTROLLER: [&str; 5] = ["directory", "more-directories", "tasks", "hosts", "mpirun"];

/// Runs a job; its result, unless it was stopped or took longer than `timeout`.
pub(crate) fn run<C: Serialize, P: DeserializeOwned, R: DeserializeOwned + Send + 'static>(
    place: JobPlace<'_>,
    options: &JobOptions<'_>,
    config: &C,
    timeout: Duration,
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(P),
    on_live: OnLive<'_>,
) -> Result<Option<R>, StorageError> {
    let hosts = host_names(options.hosts);
    if hosts.is_empty() {
        let message = "hosts has no name: write them as in \"node1,node2\"".to_owned();
        return Err(StorageError::Invalid(Failure { kind: FailureKind::Invalid, message }));
    }
    let verb = ["storage", options.verb].into_iter().chain(options.directories.iter().copied());
    let fixed = ["--mpi", "--json-stream", "--live"];
    let mut arguments: Vec<String> = verb.chain(fixed).map(str::to_owned).collect();
    // They end by themselves, with what was measured until then.
    let time = TimeSpan(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    arguments.extend(["--timeout".to_owned(), time.to_string()]);
    arguments.extend(command_line(config));
    let awaited = format!("word of rank 0 on {}: it, its host or the launcher is lost", hosts[0]);
    let job = JobConfig {
        mpirun: options.mpirun,
        read: line::<R>,
        over_iwarp: false,
        arguments,
        point_timeout: SILENCE,
        awaited: &awaited,
    };
    let placement =
        Placement { hosts: &hosts, per_host: options.tasks as usize, lab: place.lab, program: place.program };
    let (mut result, mut error) = (None, None);
    let mut take = |kind| match kind {
        EventKind::Interval(point) => {
            // One of another version of this program would have no result either.
            if let Ok(point) = clearstream_schema::json::from_value(point) {
                on_point(point);
            }
        }
        EventKind::Result(found) => result = Some(found),
        EventKind::Error(document) => error = Some(document),
        EventKind::State(state) if state.name == LIVE_STATE => {
            let live = state.detail.and_then(|detail| clearstream_schema::json::from_value(detail).ok());
            on_live(live.as_ref());
        }
        _ => {}
    };
    let ended = within(timeout.saturating_add(END_TIME), stop, |stop| job.run_on(placement, stop, &mut take));
    match ended {
        Ok(ended) if result.is_some() || ended.ending == Ending::Stopped => Ok(result),
        // Interrupted ranks end with an error beside their result.
        Err(_) if result.is_some() => Ok(result),
        Ok(_) => Err(StorageError::Failed(Failure {
            kind: FailureKind::Connection,
            message: "the ranks ended without a result".to_owned(),
        })),
        Err(JobError::Invalid(failure)) => Err(StorageError::Invalid(failure)),
        Err(JobError::Failed(failure)) => Err(StorageError::Failed(error.map_or(failure, of_rank))),
    }
}

/// Raises a flag at a request, or at the end of the time.
fn within<T>(time: Duration, stop: &AtomicBool, run: impl FnOnce(&AtomicBool) -> T) -> T {
    let (is_over, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                if stop.load(Relaxed) || begun.elapsed() >= time {
                    is_over.store(true, Relaxed);
                }
                thread::sleep(POLL_INTERVAL);
            }
        });
        let found = run(&is_over);
        is_done.store(true, Relaxed);
        found
    })
}

/// Whether the ranks of a result were all of them.
pub(crate) fn check_ranks(found: u32, expected: u64) -> Result<(), StorageError> {
    if u64::from(found) == expected {
        return Ok(());
    }
    let message = format!(
        "{found} of {expected} ranks found each other: the library of --mpi-library is of another MPI than --mpirun \
         (extras/mpi/library/build makes one with the site's mpicc)"
    );
    Err(StorageError::Failed(Failure { kind: FailureKind::Unsupported, message }))
}

fn of_rank(document: ErrorDocument) -> Failure {
    let code = ExitCode::of_number(i32::from(document.exit_code));
    let kind = code.and_then(ExitCode::failure_kind).unwrap_or(FailureKind::Connection);
    Failure { kind, message: document.message }
}

/// Keys of options are their names.
fn command_line(config: &impl Serialize) -> Vec<String> {
    let Ok(Value::Object(values)) = clearstream_schema::json::to_value(config) else { return Vec::new() };
    let of_ranks = values.into_iter().filter(|(key, _)| !OF_CONTROLLER.contains(&key.as_str()));
    of_ranks
        .flat_map(|(key, value)| {
            let option = format!("--{key}");
            match value {
                Value::Null | Value::Bool(false) => Vec::new(),
                Value::Bool(true) => vec![option],
                Value::String(text) => vec![option, text],
                Value::Array(values) => {
                    let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
                    vec![option, texts.join(",")]
                }
                other => vec![option, other.to_string()],
            }
        })
        .collect()
}

/// Reads an event of rank 0.
fn line<R: DeserializeOwned>(text: &str) -> Option<Line<EventKind<R>>> {
    let event: Event<R> = clearstream_schema::json::from_str(text).ok()?;
    Some(match event.kind {
        kind @ EventKind::Result(_) => Line::Result(Box::new(kind)),
        kind @ (EventKind::Interval(_) | EventKind::Error(_) | EventKind::State(_)) => {
            Line::Point(Box::new(kind))
        }
        _ => Line::Running,
    })
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{
        ByteCount, TimeSpan,
        storage::{
            StreamConfig,
            metadata::{MetadataConfig, MetadataOperation},
        },
    };

    use super::*;

    #[test]
    fn options_of_a_configuration_are_those_of_the_command() {
        let config = StreamConfig {
            directory: "/mnt".to_owned(),
            transfer: ByteCount(4 << 20),
            fsync: true,
            stonewall: Some(TimeSpan::from_seconds(2)),
            hosts: Some("a,b".to_owned()),
            ..StreamConfig::default()
        };
        let line = command_line(&config).join(" ");
        for part in ["--transfer 4MiB", "--fsync", "--stonewall 2s", "--reorder none", "--queue-depth 16"] {
            assert!(line.contains(part), "{line}");
        }
        for part in ["--hosts", "--tasks", "--directory", "--verify", "--name"] {
            assert!(!line.contains(part), "{line}");
        }
        let phases = vec![MetadataOperation::Stat, MetadataOperation::Remove];
        let line = command_line(&MetadataConfig { phases, ..MetadataConfig::default() }).join(" ");
        assert!(line.contains("--phases stat,remove"), "{line}");
    }
}
