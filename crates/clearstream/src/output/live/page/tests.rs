//! The page as it is drawn, cell by cell.

use std::time::Duration;

use clearstream_schema::{
    counters::{HostCounters, InterfaceCounters},
    live::{CorePlace, LIVE_SAMPLE_SCHEMA, QueueCounters, TcpState},
};
use ratatui::{Terminal, backend::TestBackend};

use super::*;

/// A second of a host with `core_count` cores on two packages, with 10 Gb/s inbound.
fn sample(core_count: u32) -> LiveSample {
    let core = |core| CoreCounters {
        core,
        user_ns: 250_000_000,
        softirq_ns: 500_000_000,
        idle_ns: 250_000_000,
        softnet_dropped_count: u64::from(core == 0) * 3,
        ..CoreCounters::default()
    };
    let place = |core| CorePlace { core, node: core % 2, package: core % 2 };
    LiveSample {
        schema: LIVE_SAMPLE_SCHEMA.to_owned(),
        version: 1,
        host: "dtn1".to_owned(),
        time: "2026-11-24T12:03:04.5Z".to_owned(),
        interval_ns: 1_000_000_000,
        counters: HostCounters {
            cores: (0..core_count).map(core).collect(),
            interfaces: vec![InterfaceCounters {
                name: "eth0".to_owned(),
                receive_bytes: 1_250_000_000,
                receive_packet_count: 150_000,
                send_bytes: 125_000,
                receive_drop_count: 7,
                ..InterfaceCounters::default()
            }],
            ..HostCounters::default()
        },
        places: (0..core_count).map(place).collect(),
        queues: vec![QueueCounters {
            interface: "eth0".to_owned(),
            queue: 3,
            sends: false,
            bytes: 0,
            packet_count: 150_000,
        }],
        tcp: TcpState { retransmit_count: 12, established_count: 4, ..TcpState::default() },
        connections: vec![LiveConnection {
            local: ([192, 0, 2, 1], 5201).into(),
            remote: ([192, 0, 2, 2], 40000).into(),
            program: "iperf3\u{1b}[31m (17)".to_owned(),
            out_bps: 0.0,
            in_bps: 9.9e9,
            rtt_ns: 17_000_000,
            retransmit_count: 12,
            limit: "receiver-window".to_owned(),
            sentence: "the window of 6.00 MiB allows 2.96 Gb/s over 17.0 ms ".repeat(2).trim().to_owned(),
        }],
        connections_ns: 3_000_000_000,
        connection_count: 4,
        paths: Vec::new(),
        notices: Vec::new(),
    }
}

fn drawn(page: &mut Page, board: &Board, columns: u16, rows: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| page.draw(board, frame)).unwrap();
    let cells = terminal.backend().buffer().content();
    let text = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
    cells.chunks(usize::from(columns)).map(|row| text(row).trim_end().to_owned()).collect()
}

fn board(core_count: u32) -> Board {
    let mut board = Board::new(&["dtn1".to_owned(), "dtn2".to_owned()], Duration::from_secs(1));
    board.add(0, sample(core_count));
    board
}

/// Rates and shares are those of the counters: 1.25 GB in a second are 10 Gb/s, 250 ms of a second 2 of 8 columns.
#[test]
fn eighty_columns_and_no_colour_show_everything() {
    let (board, mut page) = (board(4), Page::new(false));
    let lines = drawn(&mut page, &board, 80, 24);
    let text = lines.join("\n");
    for part in [
        "dtn1 (1 of 2)  12:03:04 UTC",
        "eth0          10.0 Gb/s  1.00 Mb/s      150k",
        "queues p/s: eth0 rx3 150k",
        "package 1 node 1",
        "  3 uuSSSS..  75%",
        "3 dropped",
        "12 retransmitted",
        "iperf3",
        "9.90 Gb/s  rtt 17.0 ms, 12 retransmitted  192.0.2.1:5201",
        "receiver-window: the window",
        "q quit  tab next host",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "a program's name writes no escape sequences");
    assert_eq!(lines.len(), 24);
}

#[test]
fn many_cores_are_one_digit_each() {
    let (board, mut page) = (board(128), Page::new(true));
    let text = drawn(&mut page, &board, 80, 24).join("\n");
    assert!(text.contains(&format!("package 0 node 0 {}", "7".repeat(63))), "{text}");
    assert!(text.contains("q quit"), "{text}");
}

#[test]
fn keys_choose_the_host_and_pause() {
    let (mut board, mut page) = (board(2), Page::new(false));
    assert_eq!(page.key(KeyCode::Tab), Some(ScreenEvent::Redraw));
    assert!(drawn(&mut page, &board, 80, 24)[0].contains("dtn2 (2 of 2)  waiting for the first interval"));
    board.lose(1, "connection reset".to_owned());
    assert!(drawn(&mut page, &board, 80, 24)[0].contains("no samples for 0 s: connection reset"));
    page.key(KeyCode::Tab);
    page.key(KeyCode::Char('p'));
    let before = drawn(&mut page, &board, 80, 24);
    let mut later = sample(2);
    later.counters.interfaces[0].receive_bytes = 0;
    board.add(0, later);
    assert_eq!(drawn(&mut page, &board, 80, 24)[2], before[2], "paused");
    page.key(KeyCode::Char('p'));
    assert_ne!(drawn(&mut page, &board, 80, 24)[2], before[2]);
    assert_eq!(page.key(KeyCode::Char('x')), None);
    assert_eq!(page.key(KeyCode::Char('q')), Some(ScreenEvent::Quit));
}

#[test]
fn a_small_terminal_keeps_the_title_and_the_keys() {
    let (board, mut page) = (board(4), Page::new(false));
    for (columns, rows) in [(40, 10), (20, 4), (1, 1), (200, 60)] {
        let lines = drawn(&mut page, &board, columns, rows);
        assert!(lines[0].starts_with(&"dtn1"[..4.min(usize::from(columns))]), "{lines:?}");
    }
}
