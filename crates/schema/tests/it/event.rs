//! Tests of `event`.

use clearstream_schema::event::{EVENT_SCHEMA, Event, EventKind, Progress};
use serde_json::Value;

#[test]
fn kind_and_payload_stand_beside_the_envelope() {
    let event = Event {
        schema: EVENT_SCHEMA.to_owned(),
        version: 1,
        time: "2024-01-01T00:00:00Z".to_owned(),
        host: "dtn1".to_owned(),
        workload: "study".to_owned(),
        trial: Some(3),
        kind: EventKind::<Value>::Progress(Progress { step: "flow".to_owned(), left_ns: 5 }),
    };
    let document = serde_json::to_value(&event).unwrap();
    assert_eq!(document["kind"], "progress");
    assert_eq!(document["payload"]["left_ns"], 5);
    assert_eq!(document["trial"], 3);
    assert_eq!(serde_json::from_value::<Event>(document).unwrap(), event);
}
