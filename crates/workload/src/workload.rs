//! The contract of a workload, and the face of it that needs no types.

use std::fmt;

use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    outcome::Outcome,
};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{CLIENT, Context, SERVER, TrialError, options};

/// Something that can be measured between hosts.
pub trait Workload: Send + Sync + 'static {
    /// Its options: study key, default and JSON schema in one place. Keys are
    /// kebab-case, values carry their unit (`"17ms"`, `"1MiB"`).
    type Config: Serialize + DeserializeOwned + Default + Clone + JsonSchema;

    /// Name in study files: letters, digits and `-`.
    fn name(&self) -> &'static str;

    /// One line for people.
    fn title(&self) -> &'static str;

    /// Roles of the hosts it needs.
    fn roles(&self) -> &'static [&'static str] {
        &[CLIENT, SERVER]
    }

    /// Why it cannot be run outside a lab, and which lab to use; `None` when it can.
    fn needs_lab(&self) -> Option<&'static str> {
        None
    }

    /// Measuring it again can give something else.
    fn varies(&self) -> bool {
        true
    }

    /// Differences between the levels of its headline metric are compared.
    fn compares(&self) -> bool {
        self.varies()
    }

    /// Whether the options fit together, without side effect.
    ///
    /// # Errors
    /// What does not, and what to write.
    fn check(&self, config: &Self::Config) -> Result<(), Failure> {
        let _ = config;
        Ok(())
    }

    /// Time that a run measures, warm-up included, without setting up.
    fn time(&self, config: &Self::Config) -> TimeSpan;

    /// Usual time of setting up and taking down, until a study has measured it.
    fn overhead(&self) -> TimeSpan;

    /// Where an option that names cores places threads; `None` for options that
    /// name none.
    fn placement(&self, config: &Self::Config, option: &str) -> Option<Placement> {
        let _ = (config, option);
        None
    }

    /// Roles of the hosts that receive the data: where a lab steers packets.
    fn receivers(&self, config: &Self::Config) -> Vec<&'static str> {
        let _ = config;
        vec![SERVER]
    }

    /// Measures once.
    ///
    /// # Errors
    /// Why there is no result.
    fn run(&self, context: &mut Context<'_, '_>, config: &Self::Config) -> Result<Outcome, TrialError>;
}

/// Where an option places threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Roles of the hosts on which the threads run.
    pub roles: Vec<&'static str>,
    /// The threads receive: where packets are processed matters to them.
    pub receives: bool,
}

/// A workload whose configuration is a JSON document: what a study holds.
pub trait AnyWorkload: Send + Sync {
    /// [`Workload::name`].
    fn name(&self) -> &'static str;
    /// [`Workload::title`].
    fn title(&self) -> &'static str;
    /// [`Workload::roles`].
    fn roles(&self) -> &'static [&'static str];
    /// [`Workload::needs_lab`].
    fn needs_lab(&self) -> Option<&'static str>;
    /// [`Workload::varies`].
    fn varies(&self) -> bool;
    /// [`Workload::compares`].
    fn compares(&self) -> bool;
    /// [`Workload::overhead`].
    fn overhead(&self) -> TimeSpan;
    /// JSON schema of the options.
    fn schema(&self) -> Schema;
    /// The options that nobody set.
    fn defaults(&self) -> Value;
    /// A whole configuration with one option set.
    ///
    /// # Errors
    /// What is wrong with it, and what there is; `more` are names that the caller
    /// knows beside the options.
    fn with(&self, config: &Value, option: &str, value: &Value, more: &[&str]) -> Result<Value, String>;
    /// [`Workload::check`].
    ///
    /// # Errors
    /// As there.
    fn check(&self, config: &Value) -> Result<(), Failure>;
    /// [`Workload::time`]; none of a configuration that is not one of its own.
    fn time(&self, config: &Value) -> TimeSpan;
    /// [`Workload::placement`].
    fn placement(&self, config: &Value, option: &str) -> Option<Placement>;
    /// [`Workload::receivers`].
    fn receivers(&self, config: &Value) -> Vec<&'static str>;
    /// [`Workload::run`].
    ///
    /// # Errors
    /// As there.
    fn run(&self, context: &mut Context<'_, '_>, config: &Value) -> Result<Outcome, TrialError>;
}

impl<W: Workload> AnyWorkload for W {
    fn name(&self) -> &'static str {
        Workload::name(self)
    }

    fn title(&self) -> &'static str {
        Workload::title(self)
    }

    fn roles(&self) -> &'static [&'static str] {
        Workload::roles(self)
    }

    fn needs_lab(&self) -> Option<&'static str> {
        Workload::needs_lab(self)
    }

    fn varies(&self) -> bool {
        Workload::varies(self)
    }

    fn compares(&self) -> bool {
        Workload::compares(self)
    }

    fn overhead(&self) -> TimeSpan {
        Workload::overhead(self)
    }

    fn schema(&self) -> Schema {
        schema_for!(W::Config)
    }

    fn defaults(&self) -> Value {
        // A configuration of plain values is always JSON.
        serde_json::to_value(W::Config::default()).unwrap_or_default()
    }

    fn with(&self, config: &Value, option: &str, value: &Value, more: &[&str]) -> Result<Value, String> {
        let mut changed = config.clone();
        changed[option] = value.clone();
        let config: W::Config =
            serde_json::from_value(changed).map_err(|error| options::explain(&error.to_string(), more))?;
        serde_json::to_value(config).map_err(|error| error.to_string())
    }

    fn check(&self, config: &Value) -> Result<(), Failure> {
        Workload::check(self, &read::<W>(config)?)
    }

    fn time(&self, config: &Value) -> TimeSpan {
        read::<W>(config).map_or(TimeSpan(0), |config| Workload::time(self, &config))
    }

    fn placement(&self, config: &Value, option: &str) -> Option<Placement> {
        Workload::placement(self, &read::<W>(config).ok()?, option)
    }

    fn receivers(&self, config: &Value) -> Vec<&'static str> {
        read::<W>(config).map_or_else(|_| Vec::new(), |config| Workload::receivers(self, &config))
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &Value) -> Result<Outcome, TrialError> {
        Workload::run(self, context, &read::<W>(config)?)
    }
}

impl fmt::Debug for dyn AnyWorkload + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn read<W: Workload>(config: &Value) -> Result<W::Config, Failure> {
    W::Config::deserialize(config)
        .map_err(|error| Failure { kind: FailureKind::Invalid, message: error.to_string() })
}
