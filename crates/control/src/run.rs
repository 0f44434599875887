//! Runs one command on a host through ssh, with input: used to copy a program there.

use std::{
    io::Read,
    process::{Command, Output},
    time::{Duration, Instant},
};

use clearstream_sys::program::{Program, ProgramError, Running};

use crate::{
    child::ChildExit,
    encoding::printable,
    error::{PeerError, StartCause},
    session::SessionEnd,
    ssh::{Login, is_noise, is_ssh},
    startup::{LOGIN_TIMEOUT, OnStart, Startup},
};

/// Time without a sign of progress (bytes taken or written) after which a command that has been started there is given
/// up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Lines of standard error that are kept, and characters of each.
const KEPT_LINES: usize = 20;
const KEPT_CHARS: usize = 500;

/// Runs an ssh command (made with [`crate::ssh()`]) to completion with `input` as its standard input.
/// `on_written` is called with the bytes written so far, `on_start` when the login takes long; a command that ends
/// without reading all of the input is no error. The returned standard error excludes ssh's own log, and has the last
/// lines only.
///
/// # Errors
/// [`PeerError::Start`] when ssh could not be started or did not log in, when nothing happened for a minute, and when
/// it wrote without end; [`PeerError::Stopped`].
pub fn run_by_ssh(
    command: Command,
    name: &str,
    input: &mut dyn Read,
    on_written: &mut dyn FnMut(u64),
    on_start: OnStart<'_>,
) -> Result<Output, PeerError> {
    let through_ssh = is_ssh(&command.get_program().to_string_lossy());
    let mut progress = Progress::new(through_ssh, on_start);
    let ran =
        Program::of(command).on_terminal().within(Duration::MAX).input(input).run_watched(&mut |running| {
            if progress.has_written(running) {
                on_written(running.written());
            }
            progress.follow(running)
        });
    let mut output = ran.map_err(|error| match error {
        ProgramError::Interrupted { .. } => {
            PeerError::Stopped { name: name.to_owned(), reason: "the copy was interrupted".to_owned() }
        }
        error => {
            let cause = if error.is_missing() { StartCause::Program } else { StartCause::Other };
            PeerError::Start { name: name.to_owned(), cause, message: progress.explain(&error) }
        }
    })?;
    let lines = lines(&output.stderr);
    let logged_in = lines.iter().any(|line| Login::read(line).is_some());
    let kept = kept(lines);
    if output.status.code() == Some(255) && !logged_in {
        let exit = ChildExit::of_command("ssh", kept, output.status);
        let (cause, message) = exit.explain(name, &SessionEnd::EndOfStream { inside_frame: false }, None);
        return Err(PeerError::Start { name: name.to_owned(), cause, message });
    }
    output.stderr = kept.join("\n").into_bytes();
    Ok(output)
}

fn lines(stderr: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(stderr);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The last lines that are not ssh's own log.
fn kept(lines: Vec<String>) -> Vec<String> {
    let of_command = lines.iter().filter(|line| Login::read(line).is_none() && !is_noise(line));
    let kept: Vec<String> = of_command.map(|line| printable(line, KEPT_CHARS)).collect();
    let (_, last) = kept.split_at(kept.len().saturating_sub(KEPT_LINES));
    last.to_vec()
}

/// What a command did, and when it did something last.
struct Progress<'a> {
    startup: Option<Startup<'a>>,
    through_ssh: bool,
    on_start: Option<OnStart<'a>>,
    login: Option<Login>,
    /// Bytes of standard error that were searched for the login.
    searched_count: usize,
    written_bytes: u64,
    moved_bytes: u64,
    moved_at: Instant,
}

impl<'a> Progress<'a> {
    fn new(through_ssh: bool, on_start: OnStart<'a>) -> Self {
        Self {
            startup: None,
            through_ssh,
            on_start: Some(on_start),
            login: None,
            searched_count: 0,
            written_bytes: 0,
            moved_bytes: 0,
            moved_at: Instant::now(),
        }
    }

    /// Whether more of the input was taken: a copy that stands still shows no figures, which would hide what it waits
    /// for.
    fn has_written(&mut self, running: &Running<'_>) -> bool {
        std::mem::replace(&mut self.written_bytes, running.written()) != running.written()
    }

    /// Ends what does nothing any more.
    fn follow(&mut self, running: &Running<'_>) -> Result<(), ProgramError> {
        let now = Instant::now();
        if let Some(on_start) = self.on_start.take() {
            self.startup = Some(Startup::new(self.through_ssh, running.pid(), running.started(), on_start));
        }
        self.find_login(running.stderr());
        let moved_bytes = running.written() + running.output_bytes();
        if moved_bytes != self.moved_bytes {
            (self.moved_bytes, self.moved_at) = (moved_bytes, now);
        }
        if let Some(startup) = self.startup.as_mut().filter(|_| self.through_ssh && self.login.is_none()) {
            // The copy itself shows a bar.
            startup.is_over(None, now);
        }
        let idle = now.saturating_duration_since(self.moved_at);
        if idle < self.limit() {
            return Ok(());
        }
        Err(ProgramError::Silent { program: running.name().to_owned(), after: idle })
    }

    /// Over a shared connection ssh reports no login: then a person may be typing a password as long as nothing moves.
    fn limit(&self) -> Duration {
        if self.through_ssh && self.login.is_none() { LOGIN_TIMEOUT } else { IDLE_TIMEOUT }
    }

    fn find_login(&mut self, stderr: &[u8]) {
        let new = stderr.get(self.searched_count..).unwrap_or_default();
        let Some(end) = new.iter().rposition(|byte| *byte == b'\n') else { return };
        if self.login.is_none() {
            self.login = lines(new.split_at(end).0).iter().find_map(|line| Login::read(line));
        }
        self.searched_count += end + 1;
    }

    fn explain(&self, error: &ProgramError) -> String {
        match (error, &self.login) {
            (ProgramError::Silent { after, .. }, None) if self.through_ssh => {
                format!("ssh did not log in within {} s", after.as_secs())
            }
            (ProgramError::Silent { after, .. }, _) => {
                format!("nothing happened for {} s: the command there hangs", after.as_secs())
            }
            (error, _) => error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Cursor, os::unix::fs::PermissionsExt as _};

    use super::*;

    /// Runs a program named `ssh` of this text, with input.
    fn by_ssh(script: &str, input: &[u8]) -> Result<Output, PeerError> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("ssh");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let command = Command::new(program);
        run_by_ssh(command, "dtn2", &mut Cursor::new(input), &mut |_| {}, &mut |_| true)
    }

    #[test]
    fn what_the_other_host_prints_is_read_while_the_input_is_written() {
        let input = vec![b'x'; 1 << 20];
        let talkative = "head -c 300000 /dev/zero | tr '\\0' y >&2; wc -c";
        let output = by_ssh(talkative, &input).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1048576");
        assert_eq!(output.stderr.len(), KEPT_CHARS, "a long line is cut");
        let lines = by_ssh("seq 1 100 >&2", &[]).unwrap();
        assert_eq!(String::from_utf8_lossy(&lines.stderr).lines().count(), KEPT_LINES);
    }

    #[test]
    fn a_host_that_prints_without_end_is_given_up() {
        let error = by_ssh("cat > /dev/null; exec yes aaaa", b"x").unwrap_err();
        let PeerError::Start { name, message, .. } = &error else { panic!("{error}") };
        assert!(name == "dtn2" && message.contains("ssh wrote more than"), "{error}");
    }

    #[test]
    fn a_login_has_the_time_of_a_person_and_a_command_a_minute() {
        let mut report = |_| true;
        let mut progress = Progress::new(true, &mut report);
        assert_eq!(progress.limit(), LOGIN_TIMEOUT);
        progress.find_login(b"Authenticated to dtn2 ([192.0.2.2]:22) us");
        assert_eq!(progress.limit(), LOGIN_TIMEOUT, "the line is not complete");
        progress.find_login(b"Authenticated to dtn2 ([192.0.2.2]:22) using \"publickey\".\n");
        assert_eq!(progress.limit(), IDLE_TIMEOUT);
        let silent = ProgramError::Silent { program: "ssh".to_owned(), after: IDLE_TIMEOUT };
        assert_eq!(progress.explain(&silent), "nothing happened for 60 s: the command there hangs");
    }
}
