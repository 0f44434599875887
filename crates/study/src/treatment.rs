//! Runs the command of a treatment.

use std::{
    io::Read,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::control::{Failure, FailureKind};

use clearstream_workload::TrialError;

/// A command that switches a setting ends at once; one that waits for input never does.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum wait for what it wrote after it ended.
const QUOTE_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Of what a failing command wrote, so much is quoted.
const QUOTED_BYTES: u64 = 2000;

/// Runs a command with the shell and waits for it.
///
/// # Errors
/// It does not start, fails, or does not end within [`COMMAND_TIMEOUT`]; the
/// trial that needed it is not run.
pub(crate) fn run(command: &str) -> Result<(), TrialError> {
    let failed = |what: String| -> TrialError {
        Failure { kind: FailureKind::Unsupported, message: format!("`{command}` {what}") }.into()
    };
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("does not start: {error}")))?;
    // Read in parallel: a command that fills the pipe would block for ever. The rest is discarded.
    let reader = child.stderr.take().map(|mut stream| {
        thread::spawn(move || {
            let mut text = Vec::new();
            drop(stream.by_ref().take(QUOTED_BYTES).read_to_end(&mut text));
            drop(std::io::copy(&mut stream, &mut std::io::sink()));
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < COMMAND_TIMEOUT => thread::sleep(POLL_INTERVAL),
            Ok(None) => {
                drop(child.kill());
                drop(child.wait());
                return Err(failed(format!("did not end within {} s", COMMAND_TIMEOUT.as_secs())));
            }
            Err(error) => return Err(failed(format!("cannot be waited for: {error}"))),
        }
    };
    let ended = Instant::now();
    if status.success() {
        return Ok(());
    }
    // A background process that it left behind may hold the pipe open: then nothing is quoted.
    while reader.as_ref().is_some_and(|reader| !reader.is_finished()) && ended.elapsed() < QUOTE_TIMEOUT {
        thread::sleep(POLL_INTERVAL);
    }
    let text = reader.filter(thread::JoinHandle::is_finished).and_then(|reader| reader.join().ok());
    let last = text.as_deref().and_then(|text| text.trim().lines().last()).unwrap_or_default().to_owned();
    Err(failed(if last.is_empty() {
        format!("failed: {status}")
    } else {
        format!("failed: {status}: {last}")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_with_its_status() {
        run("true").unwrap();
        let message = run("echo no such host >&2; exit 3").unwrap_err().to_string();
        assert!(message.contains("exit 3") && message.contains("status: 3"), "{message}");
    }
}
