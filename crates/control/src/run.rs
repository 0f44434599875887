//! Runs one command on a host through ssh, with input: used to copy a program there.

use std::{
    io::{self, Read, Write},
    process::{Child, Command, Output, Stdio},
};

use crate::{
    child::ChildExit,
    error::{PeerError, StartCause},
    session::SessionEnd,
    ssh::{Login, is_noise},
};

/// Bytes read and written at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// Runs an ssh command (made with [`crate::ssh()`]) to completion with `input` as its standard input.
/// `on_written` is called with the bytes written so far; a command that ends without reading all of them is
/// no error. The returned standard error excludes ssh's own log.
///
/// # Errors
/// [`PeerError::Start`] when ssh could not be started or did not log in.
pub fn run_by_ssh(
    mut command: Command,
    name: &str,
    input: &mut dyn Read,
    on_written: &mut dyn FnMut(u64),
) -> Result<Output, PeerError> {
    let start =
        |message: String| PeerError::Start { name: name.to_owned(), cause: StartCause::Other, message };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    clearstream_sys::process::bind_child_to_parent(&mut command);
    let mut child = command.spawn().map_err(|error| start(format!("cannot start ssh: {error}")))?;
    let fed = feed(&mut child, input, on_written);
    let mut output = child.wait_with_output().map_err(|error| start(format!("ssh was lost: {error}")))?;
    if let Err(error) = fed {
        return Err(start(format!("cannot read what is copied: {error}")));
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    let logged_in = lines.iter().any(|line| Login::read(line).is_some());
    let kept: Vec<String> =
        lines.into_iter().filter(|line| Login::read(line).is_none() && !is_noise(line)).collect();
    if output.status.code() == Some(255) && !logged_in {
        let exit = ChildExit::of_command("ssh", kept, output.status);
        let (cause, message) = exit.explain(name, &SessionEnd::EndOfStream { inside_frame: false }, None);
        return Err(PeerError::Start { name: name.to_owned(), cause, message });
    }
    output.stderr = kept.join("\n").into_bytes();
    Ok(output)
}

/// Writes the input; both outputs are small and fit into their pipes. The error is that of reading `input`: a
/// command that stops reading reports the reason itself.
fn feed(child: &mut Child, input: &mut dyn Read, on_written: &mut dyn FnMut(u64)) -> io::Result<()> {
    let Some(mut stdin) = child.stdin.take() else { return Ok(()) };
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut written = 0;
    loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if stdin.write_all(&buffer[..count]).is_err() {
            return Ok(());
        }
        written += count as u64;
        on_written(written);
    }
}
