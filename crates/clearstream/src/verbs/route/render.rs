//! `clearstream route render`

use std::path::PathBuf;

use clearstream_netconfig::routes::{FolderWriter, Format, Summary};
use clearstream_route::{
    fabric::{self, Fabric, HostId},
    planner::Planner,
};

use crate::{
    exit::CommandError,
    output::{self, Output},
};

/// Write the configuration files that set up the routes of a fabric, for one
/// network configuration tool. Nothing on this host is changed.
#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    /// Name of a built-in fabric, or a fabric file
    fabric: String,
    /// The tool: networkmanager, networkd, netplan, ifcfg, nmstate, ansible or iproute2
    #[arg(long = "as", value_name = "FORMAT")]
    format: Format,
    /// Folder to write, new or empty; it gets a folder per host
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only this host; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "class")]
    host: Vec<String>,
    /// Only hosts of this class; may be repeated
    #[arg(long, value_name = "NAME")]
    class: Vec<String>,
}

impl RenderArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let fabric = fabric::load(&self.fabric)?;
        let hosts = self.hosts(&fabric)?;
        let planner = Planner::new(&fabric);
        let mut writer = FolderWriter::create(&self.out, self.format)?;
        writer.add(&hosts, &|host: &HostId| (fabric.class(*host).name.clone(), planner.routing(*host)))?;
        let summary = writer.finish()?;
        if out.is_human() { self.print(&summary) } else { Ok(out.document(&summary)?) }
    }

    fn hosts(&self, fabric: &Fabric) -> Result<Vec<HostId>, CommandError> {
        if !self.host.is_empty() {
            let found: Result<Vec<HostId>, _> = self.host.iter().map(|name| fabric.find(name)).collect();
            let mut hosts = found?;
            hosts.sort();
            hosts.dedup();
            return Ok(hosts);
        }
        if self.class.is_empty() {
            return Ok(fabric.hosts().collect());
        }
        let classes: Result<Vec<usize>, _> = self.class.iter().map(|name| fabric.find_class(name)).collect();
        let mut classes = classes?;
        classes.sort_unstable();
        classes.dedup();
        Ok(classes.into_iter().flat_map(|class| fabric.class_hosts(class)).collect())
    }

    fn print(&self, summary: &Summary) -> Result<(), CommandError> {
        let count = |number: usize, one: &str, more: &str| {
            format!("{number} {}", if number == 1 { one } else { more })
        };
        output::line(&format!(
            "{}: {} in {} for {}",
            summary.folder.display(),
            count(summary.file_count, "file", "files"),
            self.format,
            count(summary.host_count, "host", "hosts"),
        ))?;
        for (notice, hosts) in &summary.notices {
            output::line(&format!("  {notice} ({})", count(*hosts, "host", "hosts")))?;
        }
        output::line(&format!("  next: {}", self.format.next_step()))?;
        Ok(())
    }
}
