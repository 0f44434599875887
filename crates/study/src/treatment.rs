//! Runs the command of a treatment.

use std::time::Duration;

use clearstream_schema::control::{Failure, FailureKind};
use clearstream_sys::program::{Program, ProgramError};
use clearstream_workload::TrialError;

/// A command that switches a setting ends at once; one that waits for input never does.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Of what a failing command wrote, so much is quoted.
const QUOTED_BYTES: usize = 2000;

/// Runs a command with the shell and waits for it.
///
/// # Errors
/// It does not start, fails, or does not end within [`COMMAND_TIMEOUT`]; the
/// trial that needed it is not run.
pub(crate) fn run(command: &str) -> Result<(), TrialError> {
    let failed = |what: String| -> TrialError {
        Failure { kind: FailureKind::Unsupported, message: format!("`{command}` {what}") }.into()
    };
    // What it writes while it succeeds is nobody's; a process that it leaves behind must not be ended by a closed pipe.
    // The state before is set back also after an interruption.
    let shell = Program::new("sh").args(["-c", command]).without_stdout().within(COMMAND_TIMEOUT).wraps_up();
    let output = shell.run().map_err(|error| match error {
        ProgramError::Interrupted { .. } => {
            TrialError::stopped(format!("`{command}` was ended: interrupted"))
        }
        error => failed(format!("has no result: {error}")),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = &output.stderr[..output.stderr.len().min(QUOTED_BYTES)];
    let text = String::from_utf8_lossy(text);
    let status = output.status;
    Err(failed(match text.trim().lines().last() {
        None => format!("failed: {status}"),
        Some(last) => format!("failed: {status}: {last}"),
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
