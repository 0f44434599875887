//! Pairs of a route: clients on one network, servers on the other.

use clearstream_schema::fabric::HostRole;

use super::Planner;
use crate::fabric::HostId;

/// Every pair of a client and a server of a route.
#[derive(Debug)]
pub(super) struct Pairs {
    pub(super) blocks: Vec<Block>,
}

/// Hosts of one class that are clients of hosts of another one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) clients: usize,
    pub(super) servers: usize,
    /// Which end of the route the clients are on.
    pub(super) client_end: usize,
    pub(super) client_count: u64,
    pub(super) server_count: u64,
}

impl Block {
    pub(super) fn count(self) -> u64 {
        self.client_count * self.server_count
    }
}

/// A client and a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) client: HostId,
    pub(super) server: HostId,
    pub(super) client_end: usize,
}

impl Pairs {
    /// Of a route: storage hosts serve those on the other network; where there
    /// is none, the second network's hosts serve the first one's.
    pub(super) fn of(planner: &Planner<'_>, index: usize) -> Self {
        let networks = planner.routes[index].networks;
        let fabric = planner.fabric;
        let ends = |end: usize| {
            let far = networks[1 - end];
            fabric.classes_on(networks[end]).filter(move |class| {
                let is_gateway = fabric.file().classes[*class].role == HostRole::Gateway;
                !is_gateway && !fabric.classes_on(far).any(|other| other == *class)
            })
        };
        let serves = |class: &usize| fabric.file().classes[*class].role == HostRole::Storage;
        let block = |clients: usize, servers: usize, client_end: usize| Block {
            clients,
            servers,
            client_end,
            client_count: fabric.class_count(clients) as u64,
            server_count: fabric.class_count(servers) as u64,
        };
        let mut blocks = Vec::new();
        for client_end in 0..2 {
            for servers in ends(1 - client_end).filter(serves) {
                blocks.extend(ends(client_end).map(|clients| block(clients, servers, client_end)));
            }
        }
        if blocks.is_empty() {
            for servers in ends(1) {
                blocks.extend(ends(0).map(|clients| block(clients, servers, 0)));
            }
        }
        Self { blocks }
    }

    pub(super) fn count(&self) -> u64 {
        self.blocks.iter().map(|block| block.count()).sum()
    }

    /// The pair at `index`; servers count fastest.
    pub(super) fn nth(&self, index: u64) -> Option<Pair> {
        let mut index = index;
        for block in &self.blocks {
            if index < block.count() {
                let host = |class: usize, number: u64| HostId { class, index: number as usize };
                return Some(Pair {
                    client: host(block.clients, index / block.server_count),
                    server: host(block.servers, index % block.server_count),
                    client_end: block.client_end,
                });
            }
            index -= block.count();
        }
        None
    }
}
