//! Writes the page of a made-up closed loop, to view it without two hosts:
//! `cargo run -p clearstream-report --example sample_improvement -- FILE [nothing]`
#![allow(clippy::unwrap_used, reason = "an example may stop where it is")]

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../tests/it/common/improvement.rs"]
mod improvement;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let file = arguments.first().map_or("improvement.html", String::as_str);
    let found = if arguments.len() > 1 { improvement::nothing() } else { improvement::loop_of_five() };
    std::fs::write(file, clearstream_report::improvement_html(&found, None).unwrap()).unwrap();
}
