//! Writes `report.html`, `report.md` and `report.csv` of a made-up run to a
//! folder, to view the report without two hosts:
//! `cargo run -p clearstream-report --example sample_report -- FOLDER [REPETITIONS] [SECONDS] [MATRIX]`
#![allow(clippy::unwrap_used, reason = "an example may stop where it is")]

use std::{fs, path::PathBuf, time::Instant};

use clearstream_record::synthetic::{Shape, clearstream_40ge};

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../tests/it/common/hosts.rs"]
mod hosts;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default| arguments.get(index).and_then(|n| n.parse().ok()).unwrap_or(default);
    let folder = PathBuf::from(arguments.first().map_or("sample-report", String::as_str));
    let shape = Shape {
        seconds: number(2, 30),
        repetitions: number(1, 5),
        matrices: vec![8, number(3, 48)],
        failing_trial: Some(7),
        ..Shape::default()
    };
    let run = folder.join("run");
    drop(fs::remove_dir_all(&run));
    fs::create_dir_all(&folder).unwrap();
    let reader =
        clearstream_40ge(&run, &hosts::magny_cours("dtn1"), &hosts::magny_cours("dtn2"), &shape).unwrap();
    let start = Instant::now();
    fs::write(folder.join("report.html"), clearstream_report::html(&reader).unwrap()).unwrap();
    let spent = start.elapsed();
    fs::write(folder.join("report.md"), clearstream_report::markdown(&reader).unwrap()).unwrap();
    fs::write(folder.join("report.csv"), clearstream_report::csv(&reader).unwrap()).unwrap();
    for (name, host) in [
        ("vm", hosts::virtual_machine("vm")),
        ("nehalem", hosts::nehalem("dtn1")),
        ("magny-cours", hosts::magny_cours("dtn2")),
    ] {
        fs::write(folder.join(format!("{name}.svg")), clearstream_report::machine_svg(&host)).unwrap();
    }
    fs::write(folder.join("time.txt"), format!("{spent:?}\n")).unwrap();
}
