//! The stairs from the lanes of the NIC's slot down to what was measured: raw
//! signalling, line code, packet overhead, network rate, best goodput.

use clearstream_schema::host::{HostReport, Nic, PciDevice, PcieCeiling};

use crate::{
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    format::{gbps, percent, rate},
    svg::{
        Svg,
        plot::{Area, Plot, Size, tick_labels},
        scale::Scale,
    },
};

/// One step of the stairs.
struct Step {
    name: String,
    /// Cause of the difference to the step above.
    because: String,
    bps: f64,
    /// Lower end where the step is a range.
    low_bps: Option<f64>,
    class: &'static str,
}

/// The NIC whose slot is drawn: of those in a PCIe slot with a known link, the fastest.
pub(crate) fn slot(host: &HostReport) -> Option<(&Nic, &PciDevice, &PcieCeiling)> {
    host.nics
        .iter()
        .filter_map(|nic| {
            let address = nic.pci_address.as_ref()?;
            let device = host.pci_devices.iter().find(|device| &device.address == address)?;
            Some((nic, device, device.ceiling.as_ref()?))
        })
        .max_by_key(|(nic, _, ceiling)| (nic.speed_bps.unwrap_or(0), ceiling.conservative_bps as u64))
}

/// Both hosts have the same stairs.
pub(crate) fn same_stairs(a: &HostReport, b: &HostReport) -> bool {
    let key = |host| slot(host).map(|(nic, _, ceiling)| (nic.speed_bps, ceiling.clone()));
    key(a).is_some() && key(a) == key(b)
}

/// The stairs of a host, or `None` when it has no NIC in a PCIe slot.
pub(crate) fn figure(host: &HostReport, role: &str, best_bps: Option<f64>) -> Option<Figure> {
    let (nic, device, ceiling) = slot(host)?;
    let steps = steps(nic, ceiling, best_bps);
    let id = identifier(&["pcie", role]);
    let title = format!("PCIe staircase of {} ({role}), {}", nic.name, host.name);
    let finding = finding(nic, ceiling, best_bps);
    let max = device.link_max.filter(|max| Some(*max) != device.link).map(|max| {
        format!(
            "The link trained below what the card can do: {} GT/s x{}.",
            max.gigatransfers_per_second, max.lane_count
        )
    });
    let assumed = (!ceiling.max_payload_known).then(|| {
        format!(
            "The maximum payload of {} B is assumed, the device did not report it.",
            ceiling.max_payload_bytes
        )
    });
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(&steps, size)),
        notes: [Some(format!("Arithmetic: {}.", ceiling.arithmetic.trim_end_matches('.'))), max, assumed]
            .into_iter()
            .flatten()
            .collect(),
        legend: vec![
            LegendItem::new("box stair", "what the link can carry"),
            LegendItem::new("box loss", "lost"),
            LegendItem::new("box s0", "best median goodput here"),
        ]
        .into_iter()
        .filter(|item| best_bps.is_some() || item.swatch != "box s0")
        .collect(),
        table: table(&steps),
        published: Vec::new(),
        id,
        title,
        finding,
    })
}

fn steps(nic: &Nic, ceiling: &PcieCeiling, best_bps: Option<f64>) -> Vec<Step> {
    let plain =
        |name: String, because: String, bps| Step { name, because, bps, low_bps: None, class: "stair" };
    let mut steps = vec![
        plain(
            format!("PCIe Gen{} x{}, raw", ceiling.generation, ceiling.lane_count),
            String::new(),
            ceiling.raw_bps / ceiling.encoding_ratio,
        ),
        plain(
            "after the line code".to_owned(),
            format!("{} of the bits are data", percent(ceiling.encoding_ratio)),
            ceiling.raw_bps,
        ),
        Step {
            name: "after packet overhead".to_owned(),
            because: format!("headers per {} B payload", ceiling.max_payload_bytes),
            bps: ceiling.optimistic_bps,
            low_bps: Some(ceiling.conservative_bps),
            class: "stair",
        },
    ];
    if let Some(speed) = nic.speed_bps {
        let limit = (speed as f64) < ceiling.optimistic_bps;
        steps.push(Step {
            name: "network link".to_owned(),
            because: if limit { "speed of the interface" } else { "more than the slot carries" }.to_owned(),
            bps: speed as f64,
            low_bps: None,
            class: if limit { "stair" } else { "stair-hollow" },
        });
    }
    if let Some(best) = best_bps {
        steps.push(Step {
            name: "measured goodput".to_owned(),
            because: "TCP/IP and Ethernet headers, hosts".to_owned(),
            bps: best,
            low_bps: None,
            class: "s0",
        });
    }
    steps
}

fn finding(nic: &Nic, ceiling: &PcieCeiling, best_bps: Option<f64>) -> String {
    let slot = format!(
        "The slot (Gen{} x{}) carries {} to {} after protocol overhead",
        ceiling.generation,
        ceiling.lane_count,
        gbps(ceiling.conservative_bps),
        rate(ceiling.optimistic_bps)
    );
    let link = match nic.speed_bps {
        Some(speed) if (speed as f64) > ceiling.optimistic_bps => {
            format!(", less than the {} of the network link: the slot is the limit", rate(speed as f64))
        }
        Some(speed) => format!(", more than the {} of the network link", rate(speed as f64)),
        None => String::new(),
    };
    let measured = best_bps.map_or_else(String::new, |best| {
        format!(
            "; the best goodput, {}, is {} of its upper end (the highest median of all cells, chosen after measuring)",
            rate(best),
            percent(best / ceiling.optimistic_bps)
        )
    });
    format!("{slot}{link}{measured}.")
}

fn draw(steps: &[Step], size: Size) -> Svg {
    let height = size.pick(46.0, 58.0);
    let svg = Svg::new(size.width(), 24.0 + height * steps.len() as f64 + 46.0);
    let area = Area {
        left: size.pick(260.0, 12.0),
        right: svg.width - size.pick(110.0, 16.0),
        top: 16.0,
        bottom: svg.height - 46.0,
    };
    let highest = steps.iter().map(|step| step.bps / 1e9).fold(0.0, f64::max);
    let (x, ticks) = Scale::from_zero(highest, size.pick(8, 5));
    let y = Scale::Linear { domain: (0.0, 1.0), range: (0.0, 1.0) };
    let mut plot = Plot::on(svg, area, (x, tick_labels(&ticks), "rate, Gb/s"), (y, Vec::new(), ""));
    let stretches = plot.stretches(size, steps.len(), height, 24.0);
    for tick in &ticks {
        plot.upright(*tick, if *tick == 0.0 { "axis" } else { "grid" }, &stretches);
    }
    let mut above: Option<f64> = None;
    for (index, step) in steps.iter().enumerate() {
        let top = area.top + height * index as f64;
        draw_step(&mut plot, step, above, (top, height), size);
        above = Some(above.map_or(step.bps, |above| above.min(step.bps)));
    }
    plot.svg
}

fn draw_step(plot: &mut Plot, step: &Step, above: Option<f64>, (top, height): (f64, f64), size: Size) {
    let left = plot.area.left;
    let end = plot.x.at(step.bps / 1e9);
    let mut beside = end;
    let (bar_top, bar_height) = size.pick((top + 2.0, height - 4.0), (top + 24.0, height - 28.0));
    if let Some(above) = above.map(|bps| plot.x.at(bps / 1e9)).filter(|above| *above > end) {
        beside = above;
        plot.svg.rect(end, bar_top, above - end, bar_height, "loss");
        plot.svg.line((above, bar_top - size.pick(4.0, 0.0)), (above, bar_top + bar_height), "stair-edge");
    }
    let tip = format!("{}: {}", step.name, rate(step.bps));
    plot.svg
        .tipped(&tip, |svg| svg.rect(left, bar_top, end - left, bar_height, &format!("bar {}", step.class)));
    if let Some(low) = step.low_bps {
        let low = plot.x.at(low / 1e9);
        plot.svg.rect(low, bar_top, end - low, bar_height, "stair-range");
    }
    let value = match step.low_bps {
        Some(low) => format!("{} to {}", gbps(low), gbps(step.bps)),
        None => gbps(step.bps),
    };
    match size {
        Size::Wide => {
            plot.svg.text(left - 12.0, top + 20.0, "rowlabel end", &step.name);
            plot.svg.text(left - 12.0, top + 36.0, "note end", &step.because);
            plot.svg.text(beside + 8.0, top + height / 2.0 + 5.0, "value halo start", &value);
        }
        Size::Narrow => {
            plot.svg.text(left + 4.0, top + 17.0, "rowlabel halo start", &format!("{}: {value}", step.name));
        }
    }
}

fn table(steps: &[Step]) -> Table {
    let mut table = Table::new("From the slot to the application", &["Step", "#Gb/s", "Why"]);
    for step in steps {
        let value = match step.low_bps {
            Some(low) => format!("{} to {}", gbps(low), gbps(step.bps)),
            None => gbps(step.bps),
        };
        table.push(vec![step.name.clone(), value, step.because.clone()]);
    }
    table
}
