//! The workloads of a program.

use std::sync::Arc;

use clearstream_control::Services;

use crate::{AnyWorkload, EnvironmentFactor, Workload};

/// Workloads and environment factors, by name.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    workloads: Vec<Arc<dyn AnyWorkload>>,
    factors: Vec<Arc<dyn EnvironmentFactor>>,
}

impl Registry {
    /// Adds a workload. One of the same name is replaced.
    #[must_use]
    pub fn with(mut self, workload: impl Workload) -> Self {
        self.workloads.retain(|other| other.name() != workload.name());
        self.workloads.push(Arc::new(workload));
        self
    }

    /// Adds an environment factor.
    #[must_use]
    pub fn with_factor(mut self, factor: impl EnvironmentFactor) -> Self {
        self.factors.push(Arc::new(factor));
        self
    }

    /// Adds what an agent serves for all of them.
    pub fn serve(&self, services: Services) -> Services {
        self.workloads.iter().fold(services, |services, workload| workload.serve(services))
    }

    /// The workload of this name.
    pub fn workload(&self, name: &str) -> Option<Arc<dyn AnyWorkload>> {
        self.workloads.iter().find(|workload| workload.name() == name).cloned()
    }

    /// Names of all workloads, in the order of their registration.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.workloads.iter().map(|workload| workload.name())
    }

    /// The environment factor of this name.
    pub fn factor(&self, name: &str) -> Option<Arc<dyn EnvironmentFactor>> {
        self.factors.iter().find(|factor| factor.name() == name).cloned()
    }

    /// Names of all environment factors.
    pub fn factor_names(&self) -> impl Iterator<Item = &'static str> {
        self.factors.iter().map(|factor| factor.name())
    }
}
