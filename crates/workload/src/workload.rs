//! The contract of a workload, and its object-safe form.

use std::fmt;

use clearstream_control::Services;
use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    outcome::{MetricKind, Outcome},
    study::Figure,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{CLIENT, Context, SERVER, TrialError, options};

/// A measurement between hosts.
pub trait Workload: Send + Sync + 'static {
    /// Its options: study key, default and JSON schema in one place. Keys are
    /// kebab-case, values carry their unit (`"17ms"`, `"1MiB"`).
    type Config: Serialize + DeserializeOwned + Default + Clone;

    /// Name in study files: letters, digits and `-`.
    fn name(&self) -> &'static str;

    /// Title in one line.
    fn title(&self) -> &'static str;

    /// Roles of the hosts it needs.
    fn roles(&self) -> &'static [&'static str] {
        &[CLIENT, SERVER]
    }

    /// Reason why it needs a lab, and which one to use; `None` when it runs outside.
    fn needs_lab(&self) -> Option<&'static str> {
        None
    }

    /// Whether repeated measurements can differ.
    fn varies(&self) -> bool {
        true
    }

    /// Figure type of experiments that name none.
    fn figure(&self) -> Figure {
        Figure::Curve
    }

    /// Whether differences between the levels of its headline metric are compared.
    fn compares(&self) -> bool {
        self.varies()
    }

    /// Validates the options together, without side effect.
    ///
    /// # Errors
    /// The invalid option, with a suggested correction.
    fn check(&self, config: &Self::Config) -> Result<(), Failure> {
        let _ = config;
        Ok(())
    }

    /// Duration of the measurement, warm-up included, without setup.
    fn time(&self, config: &Self::Config) -> TimeSpan;

    /// Typical time of setup and teardown, until a study has measured it.
    fn overhead(&self) -> TimeSpan;

    /// Metrics of possible outcomes of this configuration, the headline first. An outcome may lack some
    /// (unsupported by a kernel, for instance); it has no others.
    fn metrics(&self, config: &Self::Config) -> Vec<MetricKind>;

    /// Placement of threads by an option that names cores; `None` for other options.
    fn placement(&self, config: &Self::Config, option: &str) -> Option<Placement> {
        let _ = (config, option);
        None
    }

    /// Roles of the hosts that receive the data, on which a lab steers packets.
    fn receivers(&self, config: &Self::Config) -> Vec<&'static str> {
        let _ = config;
        vec![SERVER]
    }

    /// Adds what an agent serves for it: its calls, each with the right that it needs.
    fn serve(&self, services: Services) -> Services {
        services
    }

    /// Runs one measurement.
    ///
    /// # Errors
    /// The reason why there is no result.
    fn run(&self, context: &mut Context<'_, '_>, config: &Self::Config) -> Result<Outcome, TrialError>;
}

/// Placement of threads by an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Roles of the hosts that run the threads.
    pub roles: Vec<&'static str>,
    /// Whether the threads receive, so that packet steering matters to them.
    pub receives: bool,
}

/// A workload whose configuration is a JSON document: as held by a study.
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
    /// [`Workload::figure`].
    fn figure(&self) -> Figure;
    /// [`Workload::compares`].
    fn compares(&self) -> bool;
    /// [`Workload::overhead`].
    fn overhead(&self) -> TimeSpan;
    /// Whether it has an option of this name.
    fn has(&self, option: &str) -> bool;
    /// The default options.
    fn defaults(&self) -> Value;
    /// A whole configuration with one option set.
    ///
    /// # Errors
    /// The mistake, and the known names; `more` are names known to the caller in addition to the options.
    fn with(&self, config: &Value, option: &str, value: &Value, more: &[&str]) -> Result<Value, String>;
    /// [`Workload::check`].
    ///
    /// # Errors
    /// As [`Workload::check`].
    fn check(&self, config: &Value) -> Result<(), Failure>;
    /// [`Workload::time`]; zero for a configuration of another workload.
    fn time(&self, config: &Value) -> TimeSpan;
    /// [`Workload::metrics`]; none for a configuration of another workload.
    fn metrics(&self, config: &Value) -> Vec<MetricKind>;
    /// [`Workload::placement`].
    fn placement(&self, config: &Value, option: &str) -> Option<Placement>;
    /// [`Workload::receivers`].
    fn receivers(&self, config: &Value) -> Vec<&'static str>;
    /// [`Workload::serve`].
    fn serve(&self, services: Services) -> Services;
    /// [`run`] with a configuration that is a document.
    ///
    /// # Errors
    /// As [`Workload::run`].
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

    fn figure(&self) -> Figure {
        Workload::figure(self)
    }

    fn compares(&self) -> bool {
        Workload::compares(self)
    }

    fn overhead(&self) -> TimeSpan {
        Workload::overhead(self)
    }

    fn has(&self, option: &str) -> bool {
        // Options that are not set are not among the defaults: what reads them knows their names.
        let mut changed = self.defaults();
        changed[option] = Value::Null;
        clearstream_schema::json::from_value::<W::Config>(changed)
            .err()
            .is_none_or(|error| !error.to_string().starts_with("unknown field"))
    }

    fn defaults(&self) -> Value {
        // A configuration of plain values is always JSON.
        clearstream_schema::json::to_value(W::Config::default()).unwrap_or_default()
    }

    fn with(&self, config: &Value, option: &str, value: &Value, more: &[&str]) -> Result<Value, String> {
        let mut changed = config.clone();
        changed[option] = value.clone();
        let config: W::Config = clearstream_schema::json::from_value(changed)
            .map_err(|error| options::explain(&error.to_string(), more))?;
        clearstream_schema::json::to_value(config).map_err(|error| error.to_string())
    }

    fn check(&self, config: &Value) -> Result<(), Failure> {
        Workload::check(self, &read::<W>(config)?)
    }

    fn time(&self, config: &Value) -> TimeSpan {
        read::<W>(config).map_or(TimeSpan(0), |config| Workload::time(self, &config))
    }

    fn metrics(&self, config: &Value) -> Vec<MetricKind> {
        read::<W>(config).map_or_else(|_| Vec::new(), |config| Workload::metrics(self, &config))
    }

    fn placement(&self, config: &Value, option: &str) -> Option<Placement> {
        Workload::placement(self, &read::<W>(config).ok()?, option)
    }

    fn receivers(&self, config: &Value) -> Vec<&'static str> {
        read::<W>(config).map_or_else(|_| Vec::new(), |config| Workload::receivers(self, &config))
    }

    fn serve(&self, services: Services) -> Services {
        Workload::serve(self, services)
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &Value) -> Result<Outcome, TrialError> {
        run(self, context, &read::<W>(config)?)
    }
}

/// Runs one measurement of a workload; its outcome has the options that were asked for beside those in force.
///
/// # Errors
/// As [`Workload::run`].
pub fn run<W: Workload>(
    workload: &W,
    context: &mut Context<'_, '_>,
    config: &W::Config,
) -> Result<Outcome, TrialError> {
    let asked = asked(config);
    let outcome = workload.run(context, config).map_err(|mut error| {
        error.partial = error.partial.map(|partial| Box::new(partial.with_requests(&asked)));
        error
    })?;
    // Every test that runs a workload checks that it returns only declared metrics, which a study file
    // may name.
    debug_assert_eq!(outcome.contradicts(&workload.metrics(config)), None, "{}", workload.name());
    Ok(outcome.with_requests(&asked))
}

impl fmt::Debug for dyn AnyWorkload + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Options that are not as by default.
fn asked<C: Serialize + Default>(config: &C) -> Map<String, Value> {
    let document = |config: &C| match clearstream_schema::json::to_value(config) {
        Ok(Value::Object(options)) => options,
        _ => Map::new(),
    };
    let defaults = document(&C::default());
    document(config).into_iter().filter(|(option, value)| defaults.get(option) != Some(value)).collect()
}

fn read<W: Workload>(config: &Value) -> Result<W::Config, Failure> {
    W::Config::deserialize(config)
        .map_err(|error| Failure { kind: FailureKind::Invalid, message: error.to_string() })
}
