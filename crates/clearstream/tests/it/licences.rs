//! What is linked has a licence that `deny.toml` allows.

use std::fs;

use crate::dependency_rules::{METADATA, list, root};

#[test]
fn licences_are_among_those_allowed() {
    let deny: toml::Table = fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap();
    let allowed: Vec<&str> =
        deny["licenses"]["allow"].as_array().unwrap().iter().filter_map(toml::Value::as_str).collect();
    for package in list(&METADATA, "packages").iter().filter(|package| !package["source"].is_null()) {
        let name = package["name"].as_str().unwrap();
        let expression = package["license"].as_str().unwrap_or_else(|| panic!("{name} names no licence"));
        assert!(is_allowed(expression, &allowed), "{name}: {expression}");
    }
}

/// Reads an SPDX expression: OR of ANDs, parentheses around ORs.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ");
    // With `(A OR B) AND C` the AND binds the groups.
    let groups = expression.split(" AND ");
    if expression.contains('(') {
        return groups
            .map(|group| group.trim_matches(['(', ')', ' ']))
            .all(|group| group.split(" OR ").any(|licence| allowed.contains(&licence.trim())));
    }
    expression
        .split(" OR ")
        .any(|choice| choice.split(" AND ").all(|licence| allowed.contains(&licence.trim())))
}

#[test]
fn licence_expressions_are_read_rightly() {
    let allowed = ["MIT", "Unicode-3.0"];
    for (expression, expected) in [
        ("MIT OR Apache-2.0", true),
        ("Apache-2.0/MIT", true),
        ("Apache-2.0 AND ISC", false),
        ("MIT AND ISC", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(GPL-3.0 OR Apache-2.0) AND Unicode-3.0", false),
        ("GPL-3.0-only", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}
