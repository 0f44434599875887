//! States and transitions of the models that come with the program, compared with enumerations written
//! by hand here, with closed forms, and between numbers of ranks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicBool,
};

use clearstream_explore::document::Exploration;
use clearstream_explore::{ExploreConfig, Program, explore};
use clearstream_ranks::threads;

const CONFIG: ExploreConfig = ExploreConfig { message_bytes: 256, memory_bytes: 1 << 30, cycles: true };

fn program(name: &str, values: &[(&str, i64)]) -> Program {
    let path = format!("{}/../../models/{name}.model", env!("CARGO_MANIFEST_DIR"));
    let values: Vec<(String, i64)> =
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Program::read(&std::fs::read_to_string(path).unwrap(), &values).unwrap()
}

fn explored(program: &Program, ranks: usize) -> Exploration {
    let stop = AtomicBool::new(false);
    let results = threads(ranks, |world| explore(world, program, &CONFIG, &stop, &mut |_| ()).unwrap());
    results.unwrap().swap_remove(0).unwrap()
}

/// States and transitions from `initial` by a transition function.
fn enumerated<S: Ord + Clone>(initial: S, next: impl Fn(&S) -> Vec<S>) -> (BTreeMap<S, Vec<S>>, u64) {
    let mut graph = BTreeMap::new();
    let (mut queue, mut transitions) = (vec![initial], 0);
    while let Some(state) = queue.pop() {
        if graph.contains_key(&state) {
            continue;
        }
        let successors = next(&state);
        transitions += successors.len() as u64;
        queue.extend(successors.iter().cloned());
        graph.insert(state, successors);
    }
    (graph, transitions)
}

/// Whether an accepting state reaches itself: by plain search from each.
fn has_cycle<S: Ord + Clone>(graph: &BTreeMap<S, Vec<S>>, accepting: impl Fn(&S) -> bool) -> bool {
    graph.keys().filter(|state| accepting(state)).any(|start| {
        let (mut seen, mut queue) = (BTreeSet::new(), graph[start].clone());
        while let Some(state) = queue.pop() {
            if state == *start {
                return true;
            }
            if seen.insert(state.clone()) {
                queue.extend(graph[&state].iter().cloned());
            }
        }
        false
    })
}

fn assert_same<S: Ord + Clone>(
    name: &str,
    values: &[(&str, i64)],
    (graph, transitions): (BTreeMap<S, Vec<S>>, u64),
    accepting: impl Fn(&S) -> bool,
) {
    let program = program(name, values);
    for ranks in [1, 2, 5] {
        let found = explored(&program, ranks);
        let what = format!("{name} {values:?} by {ranks} ranks");
        assert!(found.complete, "{what}");
        assert_eq!((found.state_count, found.transition_count), (graph.len() as u64, transitions), "{what}");
        let deadlocks = graph.values().filter(|next| next.is_empty()).count() as u64;
        assert_eq!(found.deadlock_count, deadlocks, "{what}");
        assert_eq!(
            found.accepting_count,
            graph.keys().filter(|state| accepting(state)).count() as u64,
            "{what}"
        );
        assert_eq!(found.accepting_cycle, Some(has_cycle(&graph, &accepting)), "{what}");
        assert_eq!(found.ranks.len(), ranks, "{what}");
    }
}

/// Who holds what follows from who does what: a state is a word over thinks, has_left, eats around the
/// table without an eater before one who has its left fork, and there are trace(M^N) such arrangements.
#[test]
fn philosophers_are_as_many_as_the_arrangements_around_the_table() {
    // M[a][b]: b may sit at the right of a.
    let may_follow = [[1_u64, 1, 1], [1, 1, 1], [1, 0, 0]];
    for seats in 2..=8 {
        let mut power = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
        for _ in 0..seats {
            let product = |i: usize, j: usize| (0..3).map(|k| power[i][k] * may_follow[k][j]).sum();
            power = std::array::from_fn(|i| std::array::from_fn(|j| product(i, j)));
        }
        let arrangements = power[0][0] + power[1][1] + power[2][2];
        let found = explored(&program("philosophers", &[("N", seats)]), 3);
        assert_eq!(found.state_count, arrangements, "{seats} seats");
        assert_eq!(found.deadlock_count, 1, "all with their left fork");
        assert_eq!(found.accepting_cycle, Some(true));
    }
}

#[test]
fn philosophers_are_those_of_an_enumeration_by_hand() {
    for seats in [2_usize, 4] {
        // 0 thinks, 1 has the left fork, 2 eats.
        let next = |state: &Vec<u8>| {
            let taken = |fork: usize| state[fork] > 0 || state[(fork + seats - 1) % seats] == 2;
            (0..seats)
                .filter(|seat| match state[*seat] {
                    0 => !taken(*seat),
                    1 => !taken((*seat + 1) % seats),
                    _ => true,
                })
                .map(|seat| {
                    let mut after = state.clone();
                    after[seat] = (state[seat] + 1) % 3;
                    after
                })
                .collect()
        };
        let graph = enumerated(vec![0; seats], next);
        assert_same("philosophers", &[("N", seats as i64)], graph, |state| state[0] == 2);
    }
}

#[test]
fn peterson_excludes_as_in_an_enumeration_by_hand() {
    // (states, wants, turn)
    let next = |(at, wants, turn): &([u8; 2], [bool; 2], usize)| {
        let mut all = Vec::new();
        for i in 0..2 {
            let (mut at, mut wants, mut turn) = (*at, *wants, *turn);
            match at[i] {
                0 => wants[i] = true,
                1 => turn = 1 - i,
                2 if wants[1 - i] && turn != i => continue,
                2 => (),
                _ => wants[i] = false,
            }
            at[i] = (at[i] + 1) % 4;
            all.push((at, wants, turn));
        }
        all
    };
    let graph = enumerated(([0; 2], [false; 2], 0), next);
    assert!(graph.0.keys().all(|(at, ..)| *at != [3, 3]), "mutual exclusion");
    assert_same("peterson", &[], graph, |(at, ..)| *at == [3, 3]);
}

#[test]
fn the_bakery_is_that_of_an_enumeration_by_hand() {
    for most in [1_u8, 3, 5] {
        let next = |(at, choosing, ticket): &([u8; 2], [bool; 2], [u8; 2])| {
            let mut all = Vec::new();
            for i in 0..2 {
                let (mut at, mut choosing, mut ticket) = (*at, *choosing, *ticket);
                let other = 1 - i;
                let enabled = match at[i] {
                    0 => true,
                    1 => ticket[other] < most,
                    2 => !choosing[other],
                    3 => ticket[other] == 0 || (ticket[i], i) < (ticket[other], other),
                    _ => true,
                };
                if !enabled {
                    continue;
                }
                match at[i] {
                    0 => choosing[i] = true,
                    1 => (ticket[i], choosing[i]) = (ticket[other] + 1, false),
                    4 => ticket[i] = 0,
                    _ => (),
                }
                at[i] = (at[i] + 1) % 5;
                all.push((at, choosing, ticket));
            }
            all
        };
        let graph = enumerated(([0; 2], [false; 2], [0; 2]), next);
        assert_same("bakery", &[("MAX", i64::from(most))], graph, |(at, ..)| *at == [4, 4]);
    }
}

type Ring = (Vec<u8>, Vec<u8>, Vec<Vec<u8>>, u8);

#[test]
fn a_ring_elects_one_leader_as_in_an_enumeration_by_hand() {
    let size = 4_usize;
    let number = |i: usize| (7 * i % size + 1) as u8;
    let next = |(at, seen, ring, leaders): &Ring| {
        let mut all: Vec<Ring> = Vec::new();
        for i in 0..size {
            let (mut at, mut seen, mut ring, mut leaders) =
                (at.clone(), seen.clone(), ring.clone(), *leaders);
            let to = (i + 1) % size;
            match at[i] {
                0 if ring[to].len() < size => {
                    ring[to].push(number(i));
                    at[i] = 1;
                }
                1 if !ring[i].is_empty() => {
                    seen[i] = ring[i].remove(0);
                    at[i] = 2;
                }
                2 => {
                    if seen[i] > number(i) {
                        if ring[to].len() == size {
                            continue;
                        }
                        ring[to].push(seen[i]);
                        at[i] = 1;
                    } else if seen[i] < number(i) {
                        at[i] = 1;
                    } else {
                        at[i] = 3;
                        leaders += 1;
                    }
                    seen[i] = 0;
                }
                _ => continue,
            }
            all.push((at, seen, ring, leaders));
        }
        all
    };
    let graph = enumerated((vec![0; size], vec![0; size], vec![Vec::new(); size], 0), next);
    assert!(graph.0.keys().all(|(.., leaders)| *leaders <= 1));
    assert_same("leader", &[("N", size as i64)], graph, |(.., leaders)| *leaders > 1);
}

/// Whatever is written after the other, within each other or many times: none takes the stack of a thread, nor memory
/// for what it is multiplied by.
#[test]
fn models_of_any_size_are_read_or_refused() {
    let guard = |expr: &str| {
        format!(
            "model m\nvariable x[8] : 0..1\nchannel c holds 4 : 0..1\nprocess p {{ state a\n a -> a when {expr}\n}}"
        )
    };
    let mut hostile: Vec<String> = ["+", "-", "*", "/", "%", "&&", "||", "=="]
        .map(|sign| guard(&["x[0]"; 50_000].join(sign)))
        .into_iter()
        .chain(
            ["!", "-", "(", "x[", "(1+", "1+(", "x[0]+x[", "!(x[0] && "]
                .map(|open| guard(&open.repeat(50_000))),
        )
        .collect();
    // Chains within each other.
    let chain = vec!["1"; 90].join("+");
    hostile.push(guard(&(0..90).fold("1".to_owned(), |inner, _| format!("{chain}+({inner})"))));
    let transitions = "a -> a when x == 1 { x = 0; x = 1 }\n".repeat(10_000);
    hostile.push(format!("model m\nvariable x : 0..1\nprocess p[4096] {{ state a\n{transitions}}}"));
    let states: Vec<String> = (0..50_000).map(|number| format!("s{number}")).collect();
    hostile.push(format!("model m\nprocess p[4096] {{ state {} }}", states.join(", ")));
    hostile.push(format!("model m\nprocess p[4096] {{ state {} }}", "s".repeat(1 << 20)));
    let parameters: String = (0..20_000).map(|number| format!("parameter n{number} = 1\n")).collect();
    hostile.push(format!("model m\n{parameters}process p[4096] {{ state a }}"));
    hostile.push("model m\nvariable x[4096] : 0..1\nprocess p[4096] { state a }".to_owned());
    hostile.push("model m\nchannel c[4096] holds 256 : 0..1\nprocess p { state a }".to_owned());
    hostile.push("model m\nparameter n = 1\nvariable x : 0..0 = -n\nprocess p { state a }".to_owned());
    let values = [("n".to_owned(), i64::MIN)];
    let all = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        for text in &hostile {
            let values = if text.contains("-n") { &values[..] } else { &[] };
            assert!(Program::read(text, values).is_err(), "{}", &text[..text.len().min(200)]);
        }
        Program::read(&guard(&["x[0]"; 257].join("+")), &[]).map(drop)
    });
    all.unwrap().join().unwrap().unwrap();
}
