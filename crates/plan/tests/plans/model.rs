//! Random plans on a model of a host that rejects, clips and couples values,
//! with a crash at a random moment.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use clearstream_plan::{
    Fault, Identity, Options, PlanError, SettingError, Target, apply, history, recover, revert,
};
use clearstream_schema::plan::{JournalState, Plan, Setting, Value};
use proptest::prelude::{ProptestConfig, Strategy, prop, prop_assert, prop_assert_eq, proptest};

use crate::common::{plan, step, sysctl};

const KEY_COUNT: usize = 5;
/// Values at and above these are rejected and clipped.
const REJECTED: u32 = 90;
const CLIPPED: u32 = 80;
/// Writing this key sets the next one too.
const COUPLED: usize = 1;

#[derive(Clone)]
struct Model(Arc<Mutex<BTreeMap<Setting, u32>>>);

fn key(index: usize) -> Setting {
    sysctl(&format!("net.core.key{index}"))
}

impl Model {
    fn new(values: &[u32]) -> Self {
        let values = values.iter().enumerate().map(|(index, value)| (key(index), *value)).collect();
        Self(Arc::new(Mutex::new(values)))
    }

    fn values(&self) -> BTreeMap<Setting, u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Target for Model {
    fn read(&self, setting: &Setting) -> Result<Option<Value>, SettingError> {
        Ok(self.values().get(setting).map(|value| Value::Text(value.to_string())))
    }

    fn write(&self, setting: &Setting, value: &Value) -> Result<(), SettingError> {
        let number: u32 = value.to_string().parse().unwrap();
        if number >= REJECTED {
            let source = std::io::Error::from_raw_os_error(22);
            return Err(Fault::Rejected { value: value.to_string(), source }.of(setting));
        }
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.insert(setting.clone(), number.min(CLIPPED));
        if *setting == key(COUPLED) {
            values.insert(key(COUPLED + 1), number.min(CLIPPED));
        }
        Ok(())
    }

    fn check(&self, _: &Setting, _: &Value) -> Result<(), SettingError> {
        Ok(())
    }

    fn identity(&self) -> Result<Identity, PlanError> {
        let text = "model".to_owned();
        Ok(Identity { name: text.clone(), kernel: text.clone(), boot: text, namespace: None })
    }

    fn is_live(&self) -> bool {
        false
    }
}

/// Unwinding runs nothing of ours, as a kill would.
fn dying(model: &Model, folder: &std::path::Path, at: usize) -> Options {
    let count = AtomicUsize::new(0);
    Options::new(model.clone(), folder).on_event(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == at {
            // Quietly: this is no failure of a test.
            std::panic::resume_unwind(Box::new("killed"));
        }
    })
}

fn a_plan() -> impl Strategy<Value = Plan> {
    let steps = prop::collection::btree_map(0..KEY_COUNT, 0u32..100, 0..KEY_COUNT);
    let ordered = steps.prop_map(|steps| steps.into_iter().collect::<Vec<_>>()).prop_shuffle();
    ordered.prop_map(|steps| {
        let steps = steps.into_iter().map(|(index, value)| step(key(index), &value.to_string())).collect();
        plan("model", "model", steps)
    })
}

/// Writing key 1 changes key 2: a value that needed no change is restored too,
/// unless others have changed it meanwhile.
#[test]
fn what_was_right_already_comes_back_when_the_kernel_takes_it_along() {
    let plan = plan("model", "model", vec![step(key(1), "1"), step(key(2), "1")]);
    for foreign in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let model = Model::new(&[0, 0, 1, 0, 0]);
        let options = Options::new(model.clone(), folder.path());
        let applied = apply(&plan, &options).unwrap();
        assert_eq!(applied.changed, [0]);
        assert_eq!(history(&options).unwrap()[0].changed_count, 1);
        if foreign {
            model.write(&key(2), &Value::Text("7".to_owned())).unwrap();
        }
        revert(&applied.journal.unwrap(), false, &options).unwrap();
        assert_eq!(model.values()[&key(1)], 0);
        // The coupling itself changes a foreign value; nothing of ours writes it.
        assert_eq!(model.values()[&key(2)], if foreign { 0 } else { 1 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    /// All or nothing, and reverted.
    #[test]
    fn applied_or_untouched(values in prop::collection::vec(0u32..CLIPPED, KEY_COUNT), plan in a_plan()) {
        let folder = tempfile::tempdir().unwrap();
        let model = Model::new(&values);
        let options = Options::new(model.clone(), folder.path());
        let before = model.values();
        match apply(&plan, &options) {
            Ok(applied) => {
                for step in &plan.steps {
                    prop_assert_eq!(model.values()[&step.setting].to_string(), step.desired.as_ref().unwrap().to_string());
                }
                prop_assert_eq!(apply(&plan, &options).unwrap().journal, None);
                if let Some(journal) = applied.journal {
                    // What a write changed by coupling and no step names is not in the
                    // journal.
                    let named = |setting: &Setting| plan.steps.iter().any(|step| step.setting == *setting);
                    match revert(&journal, false, &options) {
                        Ok(_) => {}
                        Err(error) => prop_assert!(false, "{}", error),
                    }
                    for (setting, value) in before.iter().filter(|(setting, _)| named(setting)) {
                        prop_assert_eq!(model.values()[setting], *value);
                    }
                }
            }
            Err(error) => {
                prop_assert!(matches!(error, PlanError::StepFailed { .. }), "{}", error);
                for step in &plan.steps {
                    prop_assert_eq!(model.values()[&step.setting], before[&step.setting]);
                }
            }
        }
    }

    /// A crash at any moment of apply, of recover, of revert.
    #[test]
    fn before_or_after(
        values in prop::collection::vec(0u32..CLIPPED, KEY_COUNT),
        plan in a_plan(),
        moments in (0usize..24, 0usize..24, 0usize..24),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let model = Model::new(&values);
        let options = Options::new(model.clone(), folder.path());
        let of_plan = |values: BTreeMap<Setting, u32>| -> Vec<u32> {
            plan.steps.iter().map(|step| values[&step.setting]).collect()
        };
        let before = of_plan(model.values());
        let _ = catch_unwind(AssertUnwindSafe(|| apply(&plan, &dying(&model, folder.path(), moments.0))));
        let _ = catch_unwind(AssertUnwindSafe(|| recover(&dying(&model, folder.path(), moments.1))));
        for recovered in recover(&options).unwrap() {
            // A coupled key that was not begun may hold what no journal knows: then
            // recovery reports it, and the operator decides.
            if let Some(problem) = recovered.problem {
                prop_assert!(problem.contains("neither"), "{}", problem);
                revert(&recovered.journal, true, &options).unwrap();
            }
        }
        let all = history(&options).unwrap();
        let Some(entry) = all.first() else {
            prop_assert_eq!(of_plan(model.values()), before);
            return Ok(());
        };
        if entry.state == JournalState::Applied {
            let after: Vec<String> = plan.steps.iter().map(|step| step.desired.as_ref().unwrap().to_string()).collect();
            let found: Vec<String> = of_plan(model.values()).iter().map(u32::to_string).collect();
            prop_assert_eq!(found, after);
            let _ = catch_unwind(AssertUnwindSafe(|| {
                revert(&entry.journal, false, &dying(&model, folder.path(), moments.2))
            }));
            for recovered in recover(&options).unwrap() {
                prop_assert_eq!(recovered.problem, None);
            }
        }
        if history(&options).unwrap()[0].state == JournalState::Reverted {
            prop_assert_eq!(of_plan(model.values()), before);
        }
    }
}
