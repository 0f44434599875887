//! `clearstream rdma run`: unmodified verbs programs, and the reasons for which
//! a program cannot run so.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use clearstream_testkit::namespace::Host;

const LIBRARY: &str = "libclearstream_verbs.so";

/// A folder with the command and, if given, a library beside it.
fn installed(library: Option<&Path>) -> (tempfile::TempDir, PathBuf) {
    let folder =
        tempfile::tempdir_in(Path::new(env!("CARGO_BIN_EXE_clearstream")).parent().unwrap()).unwrap();
    let command = folder.path().join("clearstream");
    fs::hard_link(env!("CARGO_BIN_EXE_clearstream"), &command).unwrap();
    if let Some(library) = library {
        std::os::unix::fs::symlink(library, folder.path().join(LIBRARY)).unwrap();
    }
    (folder, command)
}

/// The library that `cargo build` created beside the tests.
fn library() -> PathBuf {
    let beside = std::env::current_exe().unwrap().parent().unwrap().join(LIBRARY);
    assert!(beside.exists(), "no {}: cargo build -p clearstream-verbs makes it", beside.display());
    beside
}

fn run(command: &Path, arguments: &[&str]) -> Output {
    Command::new(command).args(["rdma", "run"]).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn refused(command: &Path, arguments: &[&str], code: i32, reason: &str) {
    let output = run(command, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(errors.contains(reason), "{arguments:?}: {errors}");
}

#[test]
fn what_cannot_be_preloaded_is_rejected_with_the_reason() {
    let (_bare, alone) = installed(None);
    refused(&alone, &["--", "true"], 5, "build it with `make libraries`");
    let (folder, command) = installed(Some(Path::new("/dev/null")));
    // A device is no library.
    refused(&command, &["--", "true"], 5, "install the package");
    fs::remove_file(folder.path().join(LIBRARY)).unwrap();
    fs::write(folder.path().join(LIBRARY), "").unwrap();
    refused(&command, &["--", "no-such-program"], 9, "there is no program no-such-program");

    let source = folder.path().join("program.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let linked = |name: &str, option: &str| {
        let program = folder.path().join(name);
        let output = Command::new("cc").arg(option).arg("-o").arg(&program).arg(&source).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        program
    };
    let fixed = linked("fixed", "-static");
    refused(&command, &["--", fixed.to_str().unwrap()], 5, "is statically linked");
    let raised = linked("raised", "-O1");
    fs::set_permissions(&raised, fs::Permissions::from_mode(0o4755)).unwrap();
    refused(&command, &["--", raised.to_str().unwrap()], 5, "is set-uid or set-gid");
    refused(&command, &["--progress", "fast", "--", "true"], 2, "adaptive");
}

#[test]
fn options_reach_the_program_and_its_exit_code_comes_back() {
    let (_folder, command) = installed(Some(&library()));
    let options =
        ["--device-name", "soft3", "--device-address", "192.0.2.9", "--progress", "inline", "--crc"];
    let options = [&options[..], &["--statistics", "--trace", "--sockets"]].concat();
    let script = "env | grep ^CLEARSTREAM_VERBS_ | sort; echo $LD_PRELOAD; ibv_devices; exit 7";
    let output = run(&command, &[&options[..], &["--", "sh", "-c", script]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(7), "{text}");
    let lines = [
        "ADDRESS=192.0.2.9",
        "CRC=1",
        "DEVICE=soft3",
        "PROGRESS=inline",
        "SOCKETS=1",
        "STATISTICS=1",
        "TRACE=1",
    ];
    for line in lines {
        assert!(text.contains(&format!("CLEARSTREAM_VERBS_{line}\n")), "{text}");
    }
    let preloaded = text.lines().find(|line| line.contains(LIBRARY)).unwrap();
    // The first library is asked first, and passes on what it does not carry.
    let (first, second) = preloaded.split_once(':').unwrap();
    assert!(first.ends_with("/rsocket/librspreload.so") && second.ends_with(LIBRARY), "{preloaded}");
    // The device of the library, named and numbered as requested.
    assert!(text.contains("soft3") && text.contains("c0000209"), "{text}");
}

/// librspreload alone ends bash by SIGSEGV, in rdma-core 44 and 65; before 61 it does not know epoll.
#[test]
fn programs_that_librspreload_breaks_are_named_before_they_start() {
    let (folder, command) = installed(Some(&library()));
    for program in ["bash", "/bin/bash"] {
        refused(&command, &["--sockets", "--", program, "-c", "true"], 5, "bash crashes at its start");
    }
    let script = folder.path().join("script");
    fs::write(&script, "#!/usr/bin/env bash\ntrue\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    refused(&command, &["--sockets", "--", script], 5, "bash crashes at its start");
    assert_eq!(run(&command, &["--", script]).status.code(), Some(0));
    let (source, waiting) = (folder.path().join("epoll.c"), folder.path().join("waiting"));
    fs::write(&source, "#include <sys/epoll.h>\nint main(void) { return epoll_ctl(0, 1, 0, 0) == 0; }\n")
        .unwrap();
    let built = Command::new("cc").arg("-o").arg(&waiting).arg(&source).status().unwrap();
    assert!(built.success());
    let output = run(&command, &["--sockets", "--", waiting.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let replaced = fs::read(librspreload()).unwrap().windows(11).any(|part| part == b"\0epoll_ctl\0");
    assert_eq!(errors.contains("waiting may wait by epoll"), !replaced, "{errors}");
}

/// librspreload of this host, which `--sockets` preloads.
fn librspreload() -> PathBuf {
    let find = "ls /usr/lib*/rsocket/librspreload.so /usr/lib/*/rsocket/librspreload.so 2>/dev/null";
    let listed = Command::new("sh").args(["-c", find]).output().unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().next().unwrap().into()
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_rping_runs_on_a_host_without_a_card() {
    let (_folder, command) = installed(Some(&library()));
    let host = Host::new();
    host.tool("ip link set lo up");
    let start = |arguments: &str| {
        let mut rping = Command::new(&command);
        rping
            .args(["rdma", "run", "--crc", "--statistics", "--trace", "--", "rping"])
            .args(arguments.split(' '));
        rping.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        host.enter(&mut rping);
        rping
    };
    let mut server = Running(start("-s -V -C 5 -a 127.0.0.1").spawn().unwrap());
    let begin = Instant::now();
    // Port 7174 in state LISTEN (proc(5)).
    let is_listening = || {
        let table = host.run(|| fs::read_to_string("/proc/thread-self/net/tcp").unwrap());
        table.lines().any(|line| line.contains(":1C06 ") && line.contains(" 0A "))
    };
    while !is_listening() {
        assert!(begin.elapsed() < Duration::from_secs(30), "rping does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    let client = start("-c -V -v -C 5 -a 127.0.0.1").output().unwrap();
    let text = String::from_utf8_lossy(&client.stdout);
    assert!(client.status.success(), "{text}{}", String::from_utf8_lossy(&client.stderr));
    assert!(text.contains("rdma-ping-4: "), "{text}");
    let errors = String::from_utf8_lossy(&client.stderr);
    for expected in ["connections by RDMA: 1, adaptive progress", "127.0.0.1:7174: 10 sends posted", "CRC32C"]
    {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    assert!(server.0.wait().unwrap().success());
}
