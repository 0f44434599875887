use clearstream_schema::scope::Scope;

use super::*;
use crate::{
    Done,
    test_calls::{Change, Double, Doubled, Nothing, plain},
};

fn controller(scope: Scope) -> Controller {
    Controller { name: "alice".to_owned(), address: ([192, 0, 2, 1], 9).into(), scope }
}

/// Serves a request; `None` as controller means no limit.
fn serve(
    services: &Services,
    controller: Option<&Controller>,
    name: &str,
    json: &str,
) -> Result<Body, Refusal> {
    let (events, _sent) = EventSender::channel();
    let body = serde_json::from_str(json).unwrap();
    services.serve(name, &body, &CallContext::new(&events, controller))
}

fn rejection(result: Result<Body, Refusal>) -> Failure {
    match result {
        Err(Refusal::Unserved(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_find_their_service_and_its_reply() {
    let reply = serve(&plain(), None, Double::NAME, r#"{"number":21}"#).unwrap();
    assert_eq!(reply.read::<Doubled>().unwrap(), Doubled { number: 42 });
    // From a newer controller within the major version.
    let reply = serve(&plain(), None, Double::NAME, r#"{"number":1,"unit":"bytes"}"#).unwrap();
    assert_eq!(reply.read::<Doubled>().unwrap(), Doubled { number: 2 });
}

#[test]
fn calls_share_the_state_of_their_service_and_no_other() {
    #[derive(Default)]
    struct Counter(u64);
    impl Service for Counter {
        fn register(calls: &mut Registration<Self>) {
            calls
                .on(|counter, Nothing {}, _| {
                    counter.0 += 1;
                    Ok(Done {})
                })
                .on(|counter, Double { .. }, _| Ok(Doubled { number: counter.0 }));
        }
    }
    let services = plain().with(Counter::default());
    for _ in 0..3 {
        serve(&services, None, Nothing::NAME, "{}").unwrap();
    }
    // Registered later, it serves the calls of both.
    let reply = serve(&services, None, Double::NAME, r#"{"number":21}"#).unwrap();
    assert_eq!(reply.read::<Doubled>().unwrap(), Doubled { number: 3 });
    serve(&services, None, Change::NAME, "{}").unwrap();
}

#[test]
fn unknown_calls_are_rejected_and_their_names_made_printable() {
    let failure = rejection(serve(&plain(), None, "paint", "{}"));
    assert_eq!(failure.kind, FailureKind::Unsupported);
    assert!(
        failure.message.contains("does not support the call `paint`: install the same version"),
        "{failure}"
    );
    let name = format!("a\n\u{1b}[2J{}", "x".repeat(1000));
    let failure = rejection(serve(&plain(), None, &name, "{}"));
    assert!(!failure.message.contains(char::is_control) && failure.message.len() < 300, "{failure}");
}

#[test]
fn malformed_calls_are_rejected_with_the_reason() {
    for json in ["null", "{}", r#"{"number":-1}"#, r#""number""#, "[[[[]]]]"] {
        let failure = rejection(serve(&plain(), None, Double::NAME, json));
        assert_eq!(failure.kind, FailureKind::Invalid);
        assert!(failure.message.contains("cannot read this `double`"), "{failure}");
    }
}

#[test]
fn the_scope_is_checked_first() {
    let alice = controller(Scope::Measure);
    // Whether the body is valid makes no difference.
    for json in ["{}", "7"] {
        let failure = rejection(serve(&plain(), Some(&alice), Change::NAME, json));
        assert_eq!(failure.kind, FailureKind::Forbidden);
        assert!(failure.message.contains("pair create alice --scope measure,change"), "{failure}");
    }
    serve(&plain(), Some(&alice), Nothing::NAME, "{}").unwrap();
    serve(&plain(), Some(&controller(Scope::MeasureAndChange)), Change::NAME, "{}").unwrap();
}

#[test]
fn every_call_is_listed_with_its_right() {
    let listed: Vec<_> = plain().calls().collect();
    let measure = Right::Measure;
    let expected =
        [("nothing", measure), ("double", measure), ("change", Right::Change), ("shutdown", measure)];
    assert_eq!(listed, expected);
}
