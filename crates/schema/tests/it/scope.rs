//! Tests of `scope`.

use clearstream_schema::scope::{Right, Scope, ScopeError};

#[test]
fn scopes_have_one_spelling_and_change_is_never_alone() {
    for (text, scope) in [("measure", Scope::Measure), ("measure,change", Scope::MeasureAndChange)] {
        assert_eq!(text.parse(), Ok(scope));
        assert_eq!(scope.to_string(), text);
    }
    assert_eq!("change, measure".parse(), Ok(Scope::MeasureAndChange));
    for bad in ["", "change", "measure,", "measure,measure", "all", "measure change", "Measure"] {
        assert_eq!(bad.parse::<Scope>(), Err(ScopeError), "{bad:?}");
    }
    assert_eq!(serde_json::to_string(&Scope::MeasureAndChange).unwrap(), r#"["measure","change"]"#);
    for bad in ["[]", r#"["change"]"#, r#"["measure","all"]"#, r#""measure""#] {
        assert!(serde_json::from_str::<Scope>(bad).is_err(), "{bad}");
    }
    assert!(!Scope::default().permits(Right::Change));
}
