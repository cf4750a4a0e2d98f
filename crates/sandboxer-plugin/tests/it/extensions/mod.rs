//! Extensions in processes of their own: honest ones, and some that die, hang or lie.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandboxer_core::Error;
use sandboxer_core::contract::{CancelFlag, EnvironmentExtension};
use sandboxer_core::environment::{
    ExtensionCapabilities, ExtensionContext, ExtensionDefinition, ExtensionRegistry, Health, IsolationLevel,
    Pricing, PricingModel, Provider, WorkspaceAccess,
};
use sandboxer_core::verification::{CheckResult, PluginProblem, join_problems};
use sandboxer_plugin::check::{AnotherExtension, Outcome, Report, Trial, check_extension};
use sandboxer_plugin::extension::{factory, last_check, save_check};
use serde_json::json;
use tempfile::TempDir;

const ID: &str = "ext.mine";
/// For calls that nobody answers; a process has to be able to start within it.
const SHORT: &str = "6s";
const LONG: &str = "50s";

struct World {
    dir: TempDir,
    class: String,
    timeout: &'static str,
    options: serde_json::Value,
    cancel: CancelFlag,
}

impl World {
    fn of(class: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mine.py"), include_str!("mine.py")).unwrap();
        let (class, cancel) = (class.to_owned(), CancelFlag::default());
        Self { dir, class, timeout: LONG, options: json!({}), cancel }
    }

    fn definition(&self) -> ExtensionDefinition {
        ExtensionDefinition {
            id: ID.to_owned(),
            summary: String::new(),
            provider: Provider::Plugin {
                module: "mine".to_owned(),
                class: Some(self.class.clone()),
                python: None,
                timeout: Some(self.timeout.to_owned()),
            },
            capabilities: ExtensionCapabilities {
                isolation: vec![IsolationLevel::Files],
                network: vec!["none".to_owned()],
                workspaces: WorkspaceAccess::None,
                exec: false,
                ports: false,
                limits: false,
                mounts: false,
            },
            self_hosted: true,
            pricing: Pricing { model: PricingModel::Free, amount: 0.0, currency: None },
            regions: Vec::new(),
            options: serde_json::from_value(self.options.clone()).unwrap(),
            origin: self.dir.path().join("ext.mine.yaml").display().to_string(),
            invalid: None,
        }
    }

    fn context(&self) -> ExtensionContext {
        ExtensionContext {
            cancel: self.cancel.clone(),
            ..ExtensionContext::quiet(self.dir.path().join("home"))
        }
    }

    /// As another start of the program would.
    fn open(&self) -> Arc<dyn EnvironmentExtension> {
        factory()(&self.definition(), &self.context()).unwrap()
    }

    fn last_check(&self) -> CheckResult {
        last_check(&self.context().home, &self.definition()).unwrap()
    }

    fn trial(&self) -> Trial {
        let (definition, context) = (self.definition(), self.context());
        let another = AnotherExtension(Arc::new(move || factory()(&definition, &context)));
        Trial { another: Some(another), ..Trial::of(&self.definition(), self.cancel.clone()) }
    }

    fn checked(&self) -> Report {
        check_extension(&*self.open(), &self.trial())
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("home/plugins/extension/state").join(ID)
    }

    fn noted(&self, what: &str) -> usize {
        let notes = fs::read_to_string(self.state().join("notes")).unwrap_or_default();
        notes.lines().filter(|line| *line == what).count()
    }

    fn made(&self) -> usize {
        fs::read_dir(self.state().join("made")).into_iter().flatten().count()
    }
}

fn reason(error: &Error) -> &str {
    match error {
        Error::Plugin { plugin, reason, log } => {
            assert_eq!(plugin, ID);
            assert!(log.as_ref().unwrap().ends_with("plugins/extension/log/ext.mine.log"), "{log:?}");
            reason
        }
        other => panic!("not an error of a plugin: {other:?}"),
    }
}

#[test]
fn an_honest_one_passes_whole_and_leaves_nothing() {
    let world = World::of("Directories");
    let report = world.checked();
    assert!(report.failed().is_empty(), "{report:#?}");
    assert_eq!(report.count(Outcome::Ok), report.steps.len(), "{report:#?}");
    assert_eq!((world.made(), world.noted("start")), (0, 2));
}

#[test]
fn what_it_makes_is_found_and_removed_by_another_process() {
    let world = World::of("Directories");
    let request = world.trial().request;
    let handle = world.open().provision(&request).unwrap();
    assert_eq!((&handle.sandbox_id, &handle.exec[..]), (&request.sandbox_id, &["env".to_owned()][..]));
    let another = world.open();
    let ready = another.wait_ready(&handle, Duration::from_secs(50), &world.cancel).unwrap();
    assert_eq!((ready.endpoints[0].name.as_str(), ready.endpoints[0].port), ("22/tcp", 2222));
    assert_eq!(another.inspect(None).unwrap().len(), 1);
    another.teardown(&request.sandbox_id, None).unwrap();
    assert_eq!(world.made(), 0);
}

#[test]
fn nothing_is_started_before_it_is_asked_for_something() {
    let world = World::of("Directories");
    let extension = world.open();
    assert_eq!(world.noted("start"), 0);
    assert_eq!(extension.health(), Health::Healthy);
    assert_eq!(extension.estimate_cost(&world.trial().request).unwrap(), None);
    assert_eq!(world.noted("start"), 1);
}

#[test]
fn what_it_has_besides_is_asked() {
    let world = World::of("Priced");
    let extension = world.open();
    assert_eq!(extension.health(), Health::Unhealthy("the disk is full".to_owned()));
    let cost = extension.estimate_cost(&world.trial().request).unwrap().unwrap();
    assert_eq!((cost.per_hour, cost.currency.as_deref()), (0.25, Some("EUR")));
}

#[test]
fn everything_that_it_lacks_is_named_at_once() {
    let world = World::of("Broken");
    let extension = world.open();
    let lacks = "`provision` takes nothing where it is called with (request); `wait_ready` is missing; \
                 `teardown` is missing; `inspect` is a coroutine; `health` takes (of) where it is called with nothing";
    for error in [extension.verify().unwrap_err(), extension.inspect(None).unwrap_err()] {
        let Error::InvalidPlugin { plugin, role: "extension", problems, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((plugin.as_str(), join_problems(&problems).as_str()), (ID, lacks));
    }
    assert_eq!(extension.health(), Health::Unhealthy(format!("it is not a valid extension: {lacks}")));
    let report = world.checked();
    assert_eq!(report.failed(), ["health"], "{report:#?}");
}

#[test]
fn the_library_opens_only_a_verified_extension() {
    let open_verified = |world: &World| {
        let mut registry = ExtensionRegistry::new(world.context());
        registry.provide("plugin", factory());
        registry.open_verified(&world.definition()).map(drop)
    };
    let broken = World::of("Broken");
    let Err(Error::InvalidPlugin { problems, .. }) = open_verified(&broken) else { panic!("it was opened") };
    assert!(problems.contains(&PluginProblem::MissingMethod { method: "wait_ready".into() }), "{problems:?}");
    let honest = World::of("Directories");
    open_verified(&honest).unwrap();
    assert_eq!(honest.last_check(), CheckResult::Ok);
}

#[test]
fn the_last_check_is_kept_until_the_definition_or_the_module_changes() {
    let broken = World::of("Broken");
    assert_eq!(broken.last_check(), CheckResult::NotChecked);
    assert!(broken.open().verify().is_err());
    let CheckResult::Broken { problems } = broken.last_check() else { panic!("{:?}", broken.last_check()) };
    assert!(problems.contains(&PluginProblem::MissingMethod { method: "wait_ready".into() }), "{problems:?}");
    let honest = World { class: "Directories".to_owned(), ..broken };
    assert_eq!(honest.last_check(), CheckResult::NotChecked);
    // The first use verifies, whichever method it is.
    honest.open().inspect(None).unwrap();
    assert_eq!(honest.last_check(), CheckResult::Ok);
    let problem = PluginProblem::FailedStep { step: "gone".into(), detail: "it is still there".into() };
    let failed = CheckResult::Broken { problems: vec![problem] };
    save_check(&honest.context().home, &honest.definition(), failed.clone()).unwrap();
    assert_eq!(honest.last_check(), failed);
    fs::write(honest.dir.path().join("mine.py"), "").unwrap();
    assert_eq!(honest.last_check(), CheckResult::NotChecked);
    let local = ExtensionDefinition { provider: Provider::Local, ..honest.definition() };
    assert_eq!(last_check(&honest.context().home, &local), None);
}

#[test]
fn what_a_death_left_is_found_and_removed() {
    let world = World::of("DiesHalfWay");
    let (extension, request) = (world.open(), world.trial().request);
    let died = extension.provision(&request).unwrap_err();
    assert!(reason(&died).contains("exited with status 7"), "{died}");
    assert_eq!(extension.inspect(Some(&request.sandbox_id)).unwrap().len(), 1);
    extension.teardown(&request.sandbox_id, None).unwrap();
    assert_eq!((world.made(), world.noted("start")), (0, 2));
    let report = world.checked();
    assert_eq!(report.failed(), ["provision"], "{report:#?}");
    assert_eq!(world.made(), 0, "what it left half made was torn down");
}

#[test]
fn a_hang_ends_with_its_deadline_and_holds_up_nobody_after() {
    let world = World { timeout: SHORT, ..World::of("Hangs") };
    let (extension, request) = (world.open(), world.trial().request);
    let handle = extension.provision(&request).unwrap();
    let hung = extension.wait_ready(&handle, Duration::from_secs(1), &world.cancel).unwrap_err();
    assert!(reason(&hung).contains("`wait_ready` got no answer within 8s"), "{hung}");
    extension.teardown(&request.sandbox_id, Some(&handle)).unwrap();
    assert_eq!((world.made(), world.noted("start")), (0, 2));
}

#[test]
fn a_hang_in_health_is_no_health() {
    let world = World { timeout: SHORT, ..World::of("HangsInHealth") };
    let health = world.open().health();
    assert!(matches!(&health, Health::Unhealthy(why) if why.contains("no answer within 6s")), "{health:?}");
}

#[test]
fn it_is_asked_again_until_it_is_ready_or_time_is_up() {
    let patient = World { options: json!({"ready_after_ms": 5000}), ..World::of("Directories") };
    let extension = patient.open();
    let handle = extension.provision(&patient.trial().request).unwrap();
    extension.wait_ready(&handle, Duration::from_secs(50), &patient.cancel).unwrap();
    let hopeless = World { options: json!({"ready_after_ms": 3_600_000}), ..World::of("Directories") };
    let extension = hopeless.open();
    let handle = extension.provision(&hopeless.trial().request).unwrap();
    let began = Instant::now();
    let late = extension.wait_ready(&handle, Duration::from_secs(3), &hopeless.cancel).unwrap_err();
    assert_eq!(reason(&late), "it was not ready within 3s: the paint is still wet");
    assert!(began.elapsed() >= Duration::from_secs(3) && hopeless.noted("wait_ready") >= 2);
    assert_eq!(hopeless.noted("start"), 1, "it was not ended for that");
}

#[test]
fn whoever_wants_to_stop_does_not_wait() {
    let world = World { options: json!({"ready_after_ms": 3_600_000}), ..World::of("Directories") };
    let extension = world.open();
    let handle = extension.provision(&world.trial().request).unwrap();
    let cancel = CancelFlag::default();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| extension.wait_ready(&handle, Duration::from_secs(3000), &cancel));
        while world.noted("wait_ready") == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled)));
    });
}

#[test]
fn a_teardown_that_did_nothing_is_found_out() {
    let world = World::of("KeepsAll");
    let (extension, request) = (world.open(), world.trial().request);
    let handle = extension.provision(&request).unwrap();
    let lied = extension.teardown(&request.sandbox_id, Some(&handle)).unwrap_err();
    assert!(
        reason(&lied).contains("it says that it has torn") && reason(&lied).contains("still finds 1"),
        "{lied}"
    );
    let report = world.checked();
    assert_eq!(report.failed(), ["teardown", "gone", "teardown_again"], "{report:#?}");
}

#[test]
fn what_is_remembered_in_memory_alone_is_found_out() {
    let report = World::of("Remembers").checked();
    assert_eq!(report.failed(), ["another_process"], "{report:#?}");
}

#[test]
fn what_is_made_twice_is_found_out() {
    let world = World::of("MakesTwice");
    let report = world.checked();
    assert_eq!(report.failed(), ["provision_again"], "{report:#?}");
    assert_eq!(world.made(), 0);
}

#[test]
fn what_is_somebody_elses_is_not_taken_for_what_was_asked_about() {
    let world = World::of("FindsOthers");
    let (extension, request) = (world.open(), world.trial().request);
    let odd = extension.inspect(Some(&request.sandbox_id)).unwrap_err();
    assert!(reason(&odd).contains("sbx_somebody_elses, which nobody asked for"), "{odd}");
    assert_eq!(world.checked().failed()[0], "inspect");
}

#[test]
fn its_own_errors_are_told_as_what_they_are() {
    let world = World::of("Refuses");
    let refused = world.open().provision(&world.trial().request).unwrap_err();
    let hint = Some("drain something".to_owned());
    assert!(
        matches!(&refused, Error::Refused { reason, hint: h } if reason == "no room" && *h == hint),
        "{refused:?}"
    );
}

#[test]
fn whoever_interrupts_a_check_leaves_nothing() {
    let world = World { options: json!({"ready_after_ms": 3_600_000}), ..World::of("Directories") };
    let extension = world.open();
    let report = std::thread::scope(|scope| {
        let checking = scope.spawn(|| check_extension(&*extension, &world.trial()));
        while world.noted("wait_ready") == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        world.cancel.cancel();
        checking.join().unwrap()
    });
    assert!(report.failed().is_empty() && report.count(Outcome::NotTried) >= 3, "{report:#?}");
    assert_eq!(world.made(), 0);
}

#[test]
fn definitions_that_cannot_be_meant_are_refused_by_their_id() {
    let world = World::of("Directories");
    let refused = |change: &dyn Fn(&mut ExtensionDefinition)| {
        let mut definition = world.definition();
        change(&mut definition);
        factory()(&definition, &world.context()).err().unwrap().to_string()
    };
    let module = |module: &str, timeout: Option<&str>| Provider::Plugin {
        module: module.to_owned(),
        class: None,
        python: None,
        timeout: timeout.map(str::to_owned),
    };
    let builtin = refused(&|d| d.provider = module("builtin:overlay", None));
    assert_eq!(builtin, "ext.mine: `builtin:overlay` is no plugin");
    let odd = refused(&|d| d.provider = module("a:B", Some("soon")));
    assert!(odd.starts_with("ext.mine: \"soon\" is not a duration"), "{odd}");
    assert!(refused(&|d| d.provider = module("a", None)).contains("needs the class"));
    assert!(refused(&|d| d.provider = Provider::Local).contains("its provider is `local`, no plugin"));
    assert!(refused(&|d| d.id = "../out".to_owned()).contains("is no id of an extension"));
}
