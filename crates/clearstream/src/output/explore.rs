//! An exploration for people.

use clearstream_explore::document::Exploration;
use clearstream_schema::human;

use super::{quantity::count, table::table};

/// States of a path that are shown; the document has all of them.
const SHOWN_STATES: usize = 12;

/// The first state, and of each further one what differs from the one before.
fn changes(path: &[String]) -> Vec<String> {
    let mut lines = Vec::with_capacity(path.len());
    let mut before: Vec<&str> = Vec::new();
    for state in path {
        let values: Vec<&str> = state.split(' ').collect();
        let changed = values.iter().enumerate().filter(|(place, value)| before.get(*place) != Some(*value));
        lines.push(changed.map(|(_, value)| *value).collect::<Vec<_>>().join(" "));
        before = values;
    }
    lines
}

/// Counts, each rank's part and traffic, and the path to what was found.
pub fn summary(found: &Exploration) -> String {
    let parameters: Vec<String> =
        found.parameters.iter().map(|one| format!("{} = {}", one.name, one.value)).collect();
    let mut text = format!(
        "{}{}: {}, {}, {}",
        found.model,
        if parameters.is_empty() { String::new() } else { format!(" ({})", parameters.join(", ")) },
        count(found.state_count, "state"),
        count(found.transition_count, "transition"),
        count(found.deadlock_count, "deadlock"),
    );
    if found.accepting_count > 0 {
        text.push_str(&format!(", {} accepting", found.accepting_count));
    }
    if let Some(is_there) = found.accepting_cycle {
        text.push_str(if is_there { "; an accepting cycle exists" } else { "; no accepting cycle" });
    }
    text.push_str(&format!(
        "\n{} over {} in {}: {:.0} states/s, {} B a state\n",
        count(found.ranks.len() as u64, "rank"),
        found.transport,
        human::time(found.duration_ns),
        found.states_per_second,
        found.state_bytes
    ));
    let rows = (0..).zip(&found.ranks).map(|(number, rank)| {
        let (messages, bytes) = (rank.sent_messages.iter().sum::<u64>(), rank.sent_bytes.iter().sum());
        let number: u32 = number;
        vec![
            number.to_string(),
            rank.host.clone(),
            rank.state_count.to_string(),
            rank.transition_count.to_string(),
            human::bytes(rank.memory_bytes),
            messages.to_string(),
            human::bytes(bytes),
        ]
    });
    let heads = [">rank", "host", ">states", ">transitions", ">memory", ">messages sent", ">bytes sent"];
    text.push_str(&table(&heads, rows.collect()));
    if !found.path.is_empty() {
        let what = if found.accepting_cycle == Some(true) {
            "an accepting state of a cycle, or one that leads to it"
        } else {
            "the first deadlock"
        };
        text.push_str(&format!("\npath of {} to {what}:", count(found.path.len() as u64, "state")));
        let lines = changes(&found.path);
        for (place, state) in lines.iter().enumerate() {
            if found.path.len() > SHOWN_STATES && place == SHOWN_STATES - 1 {
                text.push_str(&format!("\n  ... ({} more)", found.path.len() - SHOWN_STATES));
            } else if found.path.len() <= SHOWN_STATES
                || place < SHOWN_STATES - 1
                || place == found.path.len() - 1
            {
                text.push_str(&format!("\n  {state}"));
            }
        }
    }
    text
}
