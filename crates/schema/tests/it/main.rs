//! Documents, units and conversions as their users have them. No test is in the library itself: to compile its types
//! a second time takes longer than all of these.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod all_pairs;
mod dscp;
mod event;
mod failure;
mod flow;
mod flow_outcome;
mod human;
mod indirection;
mod json;
mod line_rate;
mod outcome;
mod prefix;
mod probe;
mod rdma;
mod rdma_options;
mod routing_table;
mod scope;
mod storage;
mod storage_stream;
mod units;
mod units_counts;
mod values;
