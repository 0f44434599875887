//! Tokens and files.

use std::{fs, os::unix::fs::PermissionsExt};

use super::*;

fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 5740))
}

#[test]
fn token_carries_the_whole_pairing() {
    let folder = tempfile::tempdir().unwrap();
    let token = create(folder.path(), "alice", address(), Scope::Measure).unwrap();
    assert!(token.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "one token: {token}");
    let pairing = Pairing::from_token(&format!("  {token}\n")).unwrap();
    assert_eq!(pairing.address, address());
    assert_eq!(pairing.server, load_or_make_identity(folder.path()).unwrap().pin());
    let alice = Client { name: "alice".to_owned(), pin: pairing.identity.pin(), scope: Scope::Measure };
    assert_eq!(clients(folder.path()).unwrap(), [alice]);
    let file = folder.path().join("far.json");
    pairing.save(&file).unwrap();
    assert_eq!(Pairing::load(&file).unwrap(), pairing);
}

#[test]
fn token_cut_short_or_changed_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let token = create(folder.path(), "alice", address(), Scope::Measure).unwrap();
    for length in 0..token.len() {
        let error = Pairing::from_token(&token[..length]).unwrap_err().to_string();
        assert!(error.contains("paste the whole line"), "{error}");
    }
    let mut changed = token.into_bytes();
    let middle = changed.len() / 2;
    changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
    assert!(Pairing::from_token(std::str::from_utf8(&changed).unwrap()).is_err());
}

#[test]
fn secrets_are_private_and_the_daemon_stores_none() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("config");
    let token = create(&root, "alice", address(), Scope::Measure).unwrap();
    let pairing = Pairing::from_token(&token).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&root.join(IDENTITY_FILE)), 0o600);
    let kept = fs::read_to_string(root.join("clients/alice.json")).unwrap();
    assert!(!kept.contains(&encoding::base64(pairing.identity.private_key())));
    assert!(!format!("{pairing:?}").contains("private_key"));
    let file = root.join("far.json");
    pairing.save(&file).unwrap();
    assert_eq!(mode(&file), 0o600);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let error = Pairing::load(&file).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}

#[test]
fn names_are_unique_and_released_by_revoking() {
    let folder = tempfile::tempdir().unwrap();
    create(folder.path(), "bob", address(), Scope::Measure).unwrap();
    create(folder.path(), "alice", address(), Scope::Measure).unwrap();
    let list = |folder: &Path| -> Vec<String> {
        clients(folder).unwrap().into_iter().map(|client| client.name).collect()
    };
    assert_eq!(list(folder.path()), ["alice", "bob"]);
    let error = create(folder.path(), "bob", address(), Scope::Measure).unwrap_err().to_string();
    assert!(error.contains("revoke"), "{error}");
    revoke(folder.path(), "bob").unwrap();
    assert_eq!(list(folder.path()), ["alice"]);
    assert!(matches!(revoke(folder.path(), "bob"), Err(PairingError::Name { .. })));
    create(folder.path(), "bob", address(), Scope::Measure).unwrap();
}

#[test]
fn invalid_names_never_become_paths() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["", ".", "..", "../x", "a/b", "-x", "two parts", "ü", &"x".repeat(65)] {
        assert!(
            matches!(create(folder.path(), name, address(), Scope::Measure), Err(PairingError::Name { .. })),
            "{name:?}"
        );
        assert!(matches!(revoke(folder.path(), name), Err(PairingError::Name { .. })), "{name:?}");
    }
}

#[test]
fn damaged_and_wrong_files_are_identified() {
    let folder = tempfile::tempdir().unwrap();
    let token = create(folder.path(), "alice", address(), Scope::Measure).unwrap();
    let pairing = Pairing::from_token(&token).unwrap();
    let error = Pairing::load(&folder.path().join(IDENTITY_FILE)).unwrap_err().to_string();
    assert!(error.contains("clearstream.identity"), "{error}");
    let file = folder.path().join("far.json");
    pairing.save(&file).unwrap();
    let error = pairing.save(&file).unwrap_err();
    assert!(matches!(error, PairingError::File { step: "write", .. }), "never overwritten: {error}");
    let text = fs::read_to_string(&file).unwrap();
    for length in 0..text.len() {
        fs::write(&file, &text[..length]).unwrap();
        assert!(matches!(Pairing::load(&file), Err(PairingError::Unusable { .. })), "{length}");
    }
    let missing = Pairing::load(&folder.path().join("none.json")).unwrap_err().to_string();
    assert!(missing.contains("none.json"), "{missing}");
}

/// A pairing without a scope, or with one that is unknown, permits nothing.
#[test]
fn scope_is_stored_and_has_no_default() {
    let folder = tempfile::tempdir().unwrap();
    create(folder.path(), "alice", address(), Scope::Measure).unwrap();
    create(folder.path(), "bob", address(), Scope::MeasureAndChange).unwrap();
    let scopes = || -> Result<Vec<Scope>, PairingError> {
        Ok(clients(folder.path())?.into_iter().map(|client| client.scope).collect())
    };
    assert_eq!(scopes().unwrap(), [Scope::Measure, Scope::MeasureAndChange]);
    let file = folder.path().join("clients/bob.json");
    let mut document: serde_json::Value =
        clearstream_schema::json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(document["scope"], serde_json::json!(["measure", "change"]));
    document.as_object_mut().unwrap().remove("scope");
    fs::write(&file, document.to_string()).unwrap();
    assert!(matches!(scopes(), Err(PairingError::Unusable { .. })));
    document["scope"] = serde_json::json!(["measure", "everything"]);
    fs::write(&file, document.to_string()).unwrap();
    assert!(matches!(scopes(), Err(PairingError::Unusable { .. })));
}
