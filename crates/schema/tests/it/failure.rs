//! Tests of `failure`.

use clearstream_schema::control::{Failure, FailureKind};
use std::io;

// include/uapi/asm-generic/errno-base.h and errno.h of the kernel.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;

#[test]
fn a_blocked_port_is_named_with_the_option_that_helps() {
    // errno(3) on Linux; an icmpx reject of nft(8) is one of the last three.
    let (etimedout, econnrefused, eacces, ehostunreach) = (110, 111, 13, 113);
    for errno in [etimedout, econnrefused, eacces, ehostunreach] {
        let error = io::Error::from_raw_os_error(errno);
        let failure = Failure::of_connect("no connection to [::1]:9", "TCP", &error);
        assert_eq!(failure.kind, FailureKind::Unreachable, "{errno}");
        let message = failure.message;
        assert!(message.contains("firewall") && message.contains("--port"), "{message}");
    }
    let (enetunreach, econnreset) = (101, 104);
    for (errno, kind) in [(enetunreach, FailureKind::Unreachable), (econnreset, FailureKind::Connection)] {
        let failure = Failure::of_connect("x", "TCP", &io::Error::from_raw_os_error(errno));
        assert!(failure.kind == kind && !failure.message.contains("firewall"), "{failure}");
    }
}

#[test]
fn limits_and_missing_routes_are_no_faults_of_ours() {
    let kind = |errno| FailureKind::of_system(&io::Error::from_raw_os_error(errno));
    // errno(3) on Linux.
    let (eperm, eagain, enomem, einval, enetunreach, ehostunreach) = (1, 11, 12, 22, 101, 113);
    for errno in [eperm, eagain, enomem, ENFILE, EMFILE, ENOBUFS] {
        assert_eq!(kind(errno), FailureKind::Unsupported, "{errno}");
    }
    for errno in [enetunreach, ehostunreach] {
        assert_eq!(kind(errno), FailureKind::Unreachable, "{errno}");
    }
    assert_eq!(kind(einval), FailureKind::Internal);
    let failure = Failure::of_system("make a socket", &io::Error::from_raw_os_error(EMFILE));
    assert!(failure.message.contains("ulimit -n"), "{failure}");
}
