//! Programs that do not behave, as children of these tests.

use super::*;

fn shell(script: &str) -> Program<'_> {
    Program::new("sh").args(["-c", script])
}

/// Process that `script` printed, and whether it is there.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    // A zombie has ended.
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn both_outputs_the_input_and_the_status_arrive() {
    let input = vec![b'x'; 1 << 20];
    let output = shell("head -c 300000 /dev/zero | tr '\\0' e >&2; cat; exit 3")
        .input(&input[..])
        .run()
        .expect("it ends");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, input, "a full pipe on one side holds up nothing");
    assert_eq!(output.stderr.len(), 300_000);
}

#[test]
fn a_program_that_takes_nothing_is_no_error() {
    let input = vec![b'x'; 1 << 20];
    let output = shell("exec <&-; echo enough").input(&input[..]).run().expect("it ends");
    assert_eq!(output.stdout, b"enough\n");
}

#[test]
fn a_program_has_a_time_and_ends_with_what_it_started() {
    let folder = std::env::temp_dir().join(format!("clearstream-program-{}", std::process::id()));
    let path = folder.display();
    let script = format!("sleep 600 & echo $! > {path}; wait");
    let began = Instant::now();
    let error = shell(&script).within(Duration::from_millis(300)).run().expect_err("it does not end");
    assert!(matches!(&error, ProgramError::Silent { program, .. } if program == "sh"), "{error}");
    assert_eq!(error.to_string(), "sh did not end within 0.3 s and was killed");
    assert!(began.elapsed() < Duration::from_secs(5));
    let pid = std::fs::read_to_string(&folder).expect("it began");
    std::fs::remove_file(&folder).expect("the file is there");
    let until = Instant::now() + Duration::from_secs(10);
    while is_alive(&pid) {
        assert!(Instant::now() < until, "{pid} lives");
        std::thread::sleep(LOOK_INTERVAL);
    }
}

#[test]
fn a_program_that_writes_without_end_is_killed() {
    for script in ["yes", "yes >&2"] {
        let error = shell(script).run().expect_err("it does not end");
        assert!(matches!(error, ProgramError::Talkative { .. }), "{script}: {error}");
    }
}

#[test]
fn a_background_process_that_holds_the_pipes_is_not_waited_for() {
    let began = Instant::now();
    let output = shell("echo done; sleep 20 & echo $!").run().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("done\n"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(10));
    let pid =
        text.lines().nth(1).and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw).expect("a process");
    rustix::process::kill_process(pid, Signal::KILL).expect("it is left alone");
}

#[test]
fn a_missing_program_is_named() {
    let error = Program::new("/nonexistent/program").run().expect_err("not there");
    assert!(error.is_missing() && error.to_string().starts_with("program cannot be started"), "{error}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_watch_ends_it() {
    let error = shell("sleep 600")
        .run_watched(&mut |running| match running.started().elapsed() > Duration::from_millis(50) {
            true => Err(ProgramError::Interrupted { program: running.name().to_owned() }),
            false => Ok(()),
        })
        .expect_err("it is ended");
    assert!(matches!(error, ProgramError::Interrupted { .. }));
}
