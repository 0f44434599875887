//! Participants of the experiment: hosts of a fabric that the lab has, and
//! their routing.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
};

use clearstream_lab::RunningLab;
use clearstream_route::{
    fabric::{self, Fabric, HostId},
    planner::Planner,
};
use clearstream_schema::{
    control::{Failure, FailureKind},
    fabric::{FabricFile, HostClass, HostRole},
    gateways::GatewayConfig,
    lab::LabFault,
    routing::HostRouting,
};
use clearstream_sys::namespace::NamespaceSet;
use clearstream_workload::TrialError;

use crate::{
    experiment::fault_of,
    routes::{internal, lab_error},
};

/// A gateway.
#[derive(Debug, Clone)]
pub(crate) struct GatewayHost {
    pub(crate) name: String,
    pub(crate) weight: u16,
    /// Interface on the servers' side.
    servers_side: String,
}

/// A client or a server.
#[derive(Debug, Clone)]
pub(crate) struct EndHost {
    pub(crate) name: String,
    address: IpAddr,
}

/// Participants of the experiment.
#[derive(Debug)]
pub(crate) struct Participants {
    file: FabricFile,
    pub(crate) gateways: Vec<GatewayHost>,
    pub(crate) clients: Vec<EndHost>,
    pub(crate) servers: Vec<EndHost>,
    /// Routing of every participant.
    pub(crate) routing: BTreeMap<String, HostRouting>,
}

fn invalid(message: String) -> TrialError {
    Failure { kind: FailureKind::Invalid, message }.into()
}

impl Participants {
    /// Selects the first suitable hosts of the fabric, and all gateways of its
    /// first route.
    pub(crate) fn of(lab: &RunningLab, config: &GatewayConfig) -> Result<Self, TrialError> {
        let loaded = fabric::load(&config.fabric).map_err(|error| invalid(error.to_string()))?;
        let fabric = configured_fabric(&loaded, config)?;
        let (_, networks) = fabric.route(0);
        let in_lab = |name: &str| lab.file().hosts.iter().any(|host| host.name == name);
        let ends = |servers: bool, most: u32| -> Vec<EndHost> {
            let wanted = |host: &HostId| match fabric.class(*host).role {
                HostRole::Storage => servers,
                HostRole::Compute | HostRole::Login => !servers,
                HostRole::Gateway => false,
            };
            let found = fabric.hosts().filter(wanted).filter_map(|host| {
                let link = networks.iter().find_map(|network| fabric.link_on(host, *network))?;
                let address =
                    fabric.address(host, link, false).or_else(|| fabric.address(host, link, true))?;
                Some(EndHost { name: fabric.host_name(host), address })
            });
            found.filter(|end| in_lab(&end.name)).take(most as usize).collect()
        };
        let (clients, servers) = (ends(false, config.clients), ends(true, config.servers));
        let far = fabric.hosts().find(|host| fabric.class(*host).role == HostRole::Storage);
        let far_network = far
            .and_then(|host| networks.into_iter().find(|network| fabric.link_on(host, *network).is_some()));
        let gateway_host = |gateway: &fabric::Gateway| {
            let link = fabric.link_on(gateway.host, far_network?)?;
            let servers_side = fabric.class(gateway.host).links.get(link)?.interface.clone();
            Some(GatewayHost { name: gateway.name.clone(), weight: gateway.weight, servers_side })
        };
        let gateways: Vec<GatewayHost> = fabric.route_gateways(0).filter_map(gateway_host).collect();
        for (missing, what) in [
            (clients.is_empty(), "client"),
            (servers.is_empty(), "server"),
            (!gateways.iter().all(|gateway| in_lab(&gateway.name)), "gateway of each name"),
        ] {
            if missing {
                let (fabric, lab) = (&config.fabric, &lab.file().name);
                return Err(invalid(format!(
                    "the lab {lab} has no {what} of the fabric {fabric}: use a lab with its hosts, as gateways-6"
                )));
            }
        }
        let mut participants =
            Self { file: fabric.file().clone(), gateways, clients, servers, routing: BTreeMap::new() };
        let planner = Planner::new(&fabric);
        let takes_part = |name: &String| {
            participants.gateways.iter().any(|gateway| gateway.name == *name)
                || participants.end_hosts().contains(name)
        };
        participants.routing = fabric
            .hosts()
            .map(|host| (fabric.host_name(host), host))
            .filter(|(name, _)| takes_part(name))
            .map(|(name, host)| Ok((name, with_link_addresses(lab, &fabric, host, planner.routing(host))?)))
            .collect::<Result<_, TrialError>>()?;
        Ok(participants)
    }

    /// Returns the requested fault.
    pub(crate) fn failing(&self, config: &GatewayConfig) -> Result<Option<LabFault>, TrialError> {
        let names = || self.gateways.iter().map(|gateway| gateway.name.as_str());
        let gateway = match &config.gateway {
            None => self.gateways.get((self.gateways.len() - 1) / 2),
            Some(name) => {
                Some(self.gateways.iter().find(|gateway| gateway.name == *name).ok_or_else(|| {
                    let known = names().collect::<Vec<_>>().join(", ");
                    invalid(format!("there is no gateway \"{name}\" (known: {known})"))
                })?)
            }
        };
        Ok(gateway.and_then(|gateway| fault_of(config.failure, &gateway.name, &gateway.servers_side)))
    }

    /// Returns the names of clients and servers.
    pub(crate) fn end_hosts(&self) -> Vec<String> {
        self.clients.iter().chain(&self.servers).map(|end| end.name.clone()).collect()
    }

    /// Returns the addresses that servers listen on.
    pub(crate) fn server_places(&self, lab: &RunningLab) -> Result<Vec<(NamespaceSet, IpAddr)>, TrialError> {
        let place = |end: &EndHost| Ok((lab.namespaces(&end.name).map_err(lab_error)?, end.address));
        self.servers.iter().map(place).collect()
    }

    /// Writes the modified fabric for programs that read it; it is removed with
    /// the lab.
    pub(crate) fn write_fabric(&self, lab: &RunningLab) -> Result<PathBuf, TrialError> {
        let path = lab.folder().join("fabric.toml");
        let text =
            toml::to_string(&self.file).map_err(|error| internal(format!("write a fabric: {error}")))?;
        std::fs::write(&path, text)
            .map_err(|error| Failure::of_system(&format!("write {}", Path::display(&path)), &error))?;
        Ok(path)
    }
}

/// Returns the fabric with the weights and the return path of the
/// configuration.
fn configured_fabric(loaded: &Fabric, config: &GatewayConfig) -> Result<Fabric, TrialError> {
    let mut file = loaded.file().clone();
    if let (Some(wanted), Some(route)) = (config.return_path, file.routes.first_mut()) {
        route.return_path = wanted;
    }
    if !config.weights.is_empty() {
        apply_weights(&mut file, loaded, &config.weights)?;
    }
    Fabric::new(file).map_err(|fault| invalid(format!("{}: {}: {}", config.fabric, fault.key, fault.problem)))
}

/// Sets the weights. They belong to classes, so each gateway becomes a class of
/// its own; one of weight 0 is removed.
fn apply_weights(file: &mut FabricFile, loaded: &Fabric, weights: &[u16]) -> Result<(), TrialError> {
    let gateways: Vec<&fabric::Gateway> = loaded.route_gateways(0).collect();
    if gateways.len() != weights.len() {
        let (count, given) = (gateways.len(), weights.len());
        return Err(invalid(format!("weights: {given} for {count} gateways: write one for each")));
    }
    let chosen: Vec<(&fabric::Gateway, u16)> =
        gateways.into_iter().zip(weights.iter().copied()).filter(|(_, weight)| *weight > 0).collect();
    if chosen.is_empty() {
        return Err(invalid("weights: write at least one above 0".to_owned()));
    }
    let own_class = |gateway: &fabric::Gateway| {
        format!("{}-{}", loaded.file().classes[gateway.host.class].name, gateway.name)
    };
    let chosen_numbers: Vec<usize> = chosen.iter().map(|(gateway, _)| gateway.number).collect();
    let mut classes: Vec<HostClass> = (0..loaded.file().classes.len())
        .filter(|class| loaded.file().classes[*class].role != HostRole::Gateway)
        .map(|class| with_aliases_of(loaded, class, &chosen_numbers))
        .collect();
    for (gateway, weight) in &chosen {
        let mut class = loaded.file().classes[gateway.host.class].clone();
        class.name = own_class(gateway);
        class.hosts = vec![gateway.name.clone()];
        class.weight = *weight;
        for (place, link) in class.links.iter_mut().enumerate() {
            let address = |ipv6| loaded.address(gateway.host, place, ipv6);
            link.addresses =
                [false, true].into_iter().filter_map(address).map(|found| found.to_string()).collect();
            link.link_addresses = loaded.link_address(gateway.host, place).into_iter().collect();
        }
        classes.push(class);
    }
    file.routes.truncate(1);
    for route in &mut file.routes {
        route.via = chosen.iter().map(|(gateway, _)| own_class(gateway)).collect();
    }
    file.classes = classes;
    Ok(())
}

/// Creates a class of end hosts whose servers have an alias for each of these
/// gateways only.
fn with_aliases_of(loaded: &Fabric, number: usize, gateways: &[usize]) -> HostClass {
    let mut class = loaded.file().classes[number].clone();
    for (place, link) in class.links.iter_mut().enumerate() {
        if link.alias_addresses.is_empty() {
            continue;
        }
        let mut addresses = Vec::new();
        for host in loaded.class_hosts(number) {
            let network = loaded.link_network(host, place);
            for ipv6 in [false, true] {
                let all = loaded.aliases(host, place, ipv6);
                let of_gateway = loaded.network_gateways(network).map(|gateway| gateway.number).zip(all);
                let kept: BTreeMap<usize, IpAddr> = of_gateway.collect();
                addresses
                    .extend(gateways.iter().filter_map(|gateway| kept.get(gateway)).map(IpAddr::to_string));
            }
        }
        link.alias_addresses = addresses;
    }
    class
}

/// Adds link addresses: connections are marked by that of the gateway; those
/// missing in the fabric are the lab's.
fn with_link_addresses(
    lab: &RunningLab,
    fabric: &Fabric,
    host: HostId,
    mut routing: HostRouting,
) -> Result<HostRouting, TrialError> {
    for mark in routing.connection_marks.iter_mut().filter(|mark| mark.link_address.is_empty()) {
        let place = fabric.class(host).links.iter().position(|link| link.interface == mark.interface);
        let gateway = fabric.gateways().iter().find(|gateway| gateway.name == mark.gateway);
        let interface = place.zip(gateway).and_then(|(place, gateway)| {
            let link = fabric.link_on(gateway.host, fabric.link_network(host, place))?;
            Some(&fabric.class(gateway.host).links.get(link)?.interface)
        });
        if let Some(interface) = interface {
            mark.link_address = lab.link_address(&mark.gateway, interface).map_err(lab_error)?;
        }
    }
    Ok(routing)
}
