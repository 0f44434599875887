//! Codes of errors that have no source elsewhere.

use super::*;

/// Code 1 is for faults of this program alone: what a peer or the environment does has a code of its own.
#[test]
fn only_our_own_faults_are_internal() {
    use FailureKind as Kind;
    let kinds = [
        (Kind::Invalid, ExitCode::Usage),
        (Kind::Unsupported, ExitCode::Unsupported),
        (Kind::Busy, ExitCode::Refused),
        (Kind::InUse, ExitCode::Refused),
        (Kind::Forbidden, ExitCode::Refused),
        (Kind::Connection, ExitCode::PeerLost),
        (Kind::Unreachable, ExitCode::Unreachable),
        (Kind::File, ExitCode::File),
        (Kind::Internal, ExitCode::Internal),
    ];
    for (kind, code) in kinds {
        assert_eq!(failure_kind(kind), code, "{kind:?}");
    }
    let (name, text) = (|| "dtn2".to_owned(), || "of a test".to_owned());
    let after = std::time::Duration::from_secs(10);
    let peers = [
        (PeerError::Lost { name: name(), reason: text() }, ExitCode::PeerLost),
        (PeerError::Protocol { name: name(), reason: text() }, ExitCode::PeerLost),
        (PeerError::Skew { name: name(), message: text() }, ExitCode::PeerLost),
        (PeerError::Unanswered { name: name(), awaited: text(), after }, ExitCode::PeerLost),
        (PeerError::Pairing { name: name(), message: text() }, ExitCode::Refused),
        (PeerError::Version { name: name(), message: text() }, ExitCode::Refused),
        (PeerError::Stopped { name: name(), reason: text() }, ExitCode::Interrupted),
    ];
    for (error, code) in peers {
        assert_eq!(peer(&error), code, "{error}");
        // The same by way of a trial of a study.
        assert_ne!(trial(&error.clone().into()), ExitCode::Internal, "{error}");
    }
}

/// Whatever a kernel or a folder does to a plan here, or on the host that is asked.
#[test]
fn plans_fail_for_reasons_of_the_host() {
    let source = || io::Error::from_raw_os_error(28);
    let storage = || PlanError::Storage { step: "write", path: "/x".into(), source: source() };
    let errors = [
        PlanError::Netlink(NetlinkError::Garbled("x".to_owned())),
        PlanError::Identity { what: "x".to_owned(), source: source() },
        PlanError::Connection { source: source() },
        PlanError::Guardian { source: source() },
        PlanError::JournalFailed { source: Box::new(storage()) },
        storage(),
    ];
    for error in errors {
        assert_ne!(plan(&error), ExitCode::Internal, "{error}");
        assert_ne!(failure(&clearstream_plan::failure(&error)), ExitCode::Internal, "{error}");
    }
}

#[test]
fn the_loaders_exit_code_is_kept() {
    let code = |code| congestion_control(&CcError::Loader { message: String::new(), code });
    assert_eq!(code(Some(5)), ExitCode::Unsupported);
    assert_eq!(code(Some(9)), ExitCode::Name);
    // Killed, or a code that is none of ours.
    assert_eq!(code(None), ExitCode::Unsupported);
    assert_eq!(code(Some(101)), ExitCode::Unsupported);
}
