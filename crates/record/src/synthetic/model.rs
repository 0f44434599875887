//! Experiments and cells of the synthetic run, and the rate of each cell.

use std::collections::BTreeMap;

use clearstream_schema::{
    ByteCount,
    record::Published,
    study::{Experiment, Figure, Levels, STUDY_SCHEMA, StudyFile, WorkloadOptions},
};
use serde_json::{Value, json};

use super::Factors;

/// Size of the synthetic run.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Seed of all noise.
    pub seed: u64,
    /// One-second samples per trial.
    pub seconds: u32,
    /// Repetitions of every cell.
    pub repetitions: u32,
    /// Sizes of the pin matrices: 48 gives an experiment of 48 x 48 cells.
    pub matrices: Vec<u32>,
    /// Cores listed in each sample, as from a host with that many cores.
    pub sampled_cores: u32,
    /// Number of a trial that fails.
    pub failing_trial: Option<u32>,
}

impl Default for Shape {
    /// Both matrices of the papers, ten seconds each.
    fn default() -> Self {
        Self {
            seed: 40,
            seconds: 10,
            repetitions: 1,
            matrices: vec![8, 48],
            sampled_cores: 8,
            failing_trial: None,
        }
    }
}

/// Round trip of the synthetic path: 1650 km of fibre and back.
pub(super) const RTT_NS: u64 = 17_000_000;
/// Rate of the synthetic path, bits per second.
const PATH_BPS: f64 = 19e9;
/// Windows of the sweep, one of them at the bandwidth-delay product.
pub(super) const WINDOWS: [u64; 14] = [
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
    24 << 20,
    32 << 20,
    36 << 20,
    40_380_000,
    48 << 20,
    64 << 20,
    128 << 20,
    256 << 20,
];

/// A synthetic cell.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) experiment: String,
    pub(super) workload: &'static str,
    pub(super) number: u32,
    pub(super) factors: Factors,
    /// Runs over the 17 ms path.
    pub(super) wide_area: bool,
    /// Median goodput, bits per second.
    pub(super) goodput_bps: f64,
    pub(super) flows: u32,
    pub(super) bursty: bool,
    pub(super) sender_core: u32,
    pub(super) receiver_core: u32,
    pub(super) interrupt_core: u32,
}

/// All cells, generated one at a time.
#[derive(Debug)]
pub(super) struct Cells {
    matrices: Vec<u32>,
}

impl Cells {
    pub(super) fn of(shape: &Shape) -> Self {
        Self { matrices: shape.matrices.clone() }
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.iter().count()).unwrap_or(u32::MAX)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Cell> {
        let local = [1, 2, 4].into_iter().zip(0..).map(|(flows, number)| {
            let goodput_bps = if flows == 1 { 22e9 } else { 25.3e9 };
            Cell { flows, goodput_bps, ..cell("local-throughput", number, [("flows", json!(flows))]) }
        });
        let window = WINDOWS.into_iter().zip(0..).map(|(window, number)| Cell {
            wide_area: true,
            goodput_bps: (window as f64 * 8.0 / (RTT_NS as f64 / 1e9)).min(PATH_BPS),
            ..cell("window", number, [("window", json!(ByteCount(window)))])
        });
        let live = std::iter::once(Cell {
            flows: 3,
            bursty: true,
            wide_area: true,
            goodput_bps: PATH_BPS,
            ..cell("live-traffic", 0, [("burst-flows", json!(2))])
        });
        let matrices = self.matrices.clone().into_iter().flat_map(|size| {
            (0..size * size).map(move |number| matrix_cell(size, number / size, number % size))
        });
        let rows = ["pin-row-sending", "pin-row-receiving"]
            .into_iter()
            .flat_map(|name| (0..48).map(move |core| row_cell(name, core)));
        let described = Cell { workload: "inspect", ..cell("topology", 0, []) };
        let delay = Cell { workload: "probe", wide_area: true, ..cell("delay", 0, []) };
        [described, delay].into_iter().chain(local).chain(window).chain(live).chain(matrices).chain(rows)
    }
}

fn cell<const N: usize>(experiment: &str, number: u32, factors: [(&str, Value); N]) -> Cell {
    Cell {
        experiment: experiment.to_owned(),
        workload: "flow",
        number,
        factors: factors.into_iter().map(|(key, level)| (key.to_owned(), level)).collect(),
        wide_area: false,
        goodput_bps: 0.0,
        flows: 1,
        bursty: false,
        sender_core: 2,
        receiver_core: 3,
        interrupt_core: 7,
    }
}

/// TNC 2011 figure 5: readers on the interrupt core's package gain 2 Gb/s, on the core itself 1 Gb/s; the
/// sender's position hardly matters.
fn matrix_cell(size: u32, sender_core: u32, receiver_core: u32) -> Cell {
    let interrupt_core = if size == 8 { 7 } else { 0 };
    let package = |core: u32| if size == 8 { core / 4 } else { core % 4 };
    let gain = match receiver_core {
        core if core == interrupt_core => 1.0,
        core if package(core) == package(interrupt_core) => 2.0,
        _ => 0.0,
    };
    let factors = [
        ("receive-steering", json!(interrupt_core)),
        ("receiver-cores", json!(receiver_core)),
        ("sender-cores", json!(sender_core)),
    ];
    Cell {
        goodput_bps: (20.0 + gain + 0.02 * f64::from(sender_core % 5)) * 1e9,
        sender_core,
        receiver_core,
        interrupt_core,
        ..cell(&matrix_name(size), sender_core * size + receiver_core, factors)
    }
}

fn matrix_name(size: u32) -> String {
    if size == 8 { "pin-matrix".to_owned() } else { format!("pin-matrix-{size}") }
}

/// TNC 2011 figures 7 and 8: package 1 is closest to the I/O bridge when sending; when receiving, the other
/// node of the interrupt core's package loses 4 Gb/s.
fn row_cell(experiment: &str, core: u32) -> Cell {
    let package = core % 4;
    // The first six cores of a package are one node, the other six the next.
    let first_node = core / 4 < 6;
    if experiment == "pin-row-sending" {
        let goodput_bps = if package == 1 { 19.8e9 } else { 14e9 + f64::from(package) * 0.7e9 };
        Cell { goodput_bps, sender_core: core, ..cell(experiment, core, [("sender-cores", json!(core))]) }
    } else {
        let goodput_bps = match (package, first_node) {
            (0, true) => 19.5e9,
            (0, false) => 15.5e9,
            _ => 13e9 + f64::from(package) * 0.6e9,
        };
        let factors = [("receiver-cores", json!(core))];
        Cell { goodput_bps, receiver_core: core, interrupt_core: 0, ..cell(experiment, core, factors) }
    }
}

/// The study file for this shape.
pub(super) fn study(shape: &Shape) -> StudyFile {
    let one = [Published {
        label: "one flow".to_owned(),
        source: "TNC 2011, section 3 and figure 4".to_owned(),
        factors: [("flows".to_owned(), json!(1))].into(),
        low: Some(20.7),
        high: Some(23.3),
        ..in_gigabits()
    }];
    let knee = [Published {
        label: "knee around the bandwidth-delay product: 17 ms x an assumed 19 Gb/s = 38.5 MiB".to_owned(),
        source: "ClearStream report 2011, section 4 and figure 6".to_owned(),
        factors: [("window".to_owned(), json!("40.38MB"))].into(),
        ..in_gigabits()
    }];
    let mut experiments = vec![
        experiment("topology", "inspect", Figure::Topology, []),
        experiment("delay", "probe", Figure::Delay, []),
        experiment(
            "local-throughput",
            "flow",
            Figure::Throughput,
            [("flows", vec![1.into(), 2.into(), 4.into()])],
        ),
        experiment(
            "window",
            "flow",
            Figure::WindowCurve,
            [("window", WINDOWS.map(|window| json!(ByteCount(window))).to_vec())],
        ),
        experiment("live-traffic", "flow", Figure::LiveTraffic, [("burst-flows", vec![2.into()])]),
    ];
    for &size in &shape.matrices {
        let cores: Vec<Value> = (0..size).map(Value::from).collect();
        let steering = vec![json!(if size == 8 { 7 } else { 0 })];
        experiments.push(experiment(
            &matrix_name(size),
            "flow",
            Figure::PinMatrix,
            [("receive-steering", steering), ("receiver-cores", cores.clone()), ("sender-cores", cores)],
        ));
    }
    let row: Vec<Value> = (0..48).map(Value::from).collect();
    for (name, factor) in [("pin-row-sending", "sender-cores"), ("pin-row-receiving", "receiver-cores")] {
        experiments.push(experiment(name, "flow", Figure::PinRow, [(factor, row.clone())]));
    }
    for (experiment, published) in experiments.iter_mut().skip(2).zip([one.to_vec(), knee.to_vec()]) {
        experiment.published = published;
    }
    StudyFile {
        schema: STUDY_SCHEMA.to_owned(),
        version: 1,
        name: "clearstream-40ge".to_owned(),
        title: "40 Gb/s Ethernet between two servers and over 1650 km".to_owned(),
        about: "Synthetic, after the papers.".to_owned(),
        options: WorkloadOptions::default(),
        experiments,
    }
}

fn in_gigabits() -> Published {
    Published {
        label: String::new(),
        source: String::new(),
        factors: BTreeMap::new(),
        metric: "goodput".to_owned(),
        unit: "Gb/s".to_owned(),
        low: None,
        high: None,
    }
}

fn experiment<const N: usize>(
    name: &str,
    workload: &str,
    figure: Figure,
    factors: [(&str, Vec<Value>); N],
) -> Experiment {
    Experiment {
        name: name.to_owned(),
        title: name.replace('-', " "),
        workload: workload.to_owned(),
        figure: Some(figure),
        metric: None,
        beside: None,
        options: WorkloadOptions::default(),
        factors: factors.into_iter().map(|(key, levels)| (key.to_owned(), Levels::Listed(levels))).collect(),
        repetitions: 1,
        precision_ratio: None,
        lab: None,
        quick: None,
        full: None,
        published: Vec::new(),
        published_table: Vec::new(),
        relation: None,
    }
}

/// Small seeded generator (SplitMix64, Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub(super) struct Noise(pub(super) u64);

impl Noise {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 to `limit` - 1.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// A factor of 1 plus or minus `deviation`.
    pub(super) fn factor(&mut self, deviation: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        1.0 + deviation * (2.0 * unit - 1.0)
    }
}
