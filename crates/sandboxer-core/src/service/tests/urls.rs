//! Resources that are at URLs, and strategies that give no path to work in.

use super::*;
use crate::model::Resource;

const TYPE: &str = "\
name: s3-bucket
summary: A bucket
handler: generic
detect: {kind: url, schemes: [s3]}
default_strategy: bucket
strategies: [bucket]
";

impl World {
    /// The types with buckets among them; the file is named `bucket.yaml`.
    fn bucket_types(&self) -> ResourceTypes {
        let file = self.temp.path().join("bucket.yaml");
        fs::write(&file, TYPE).unwrap();
        ResourceTypes::embedded().unwrap().with_overrides(&[file]).unwrap()
    }

    fn without_plugin(&self) -> SandboxManager {
        SandboxManager::open(ManagerParts { types: self.bucket_types(), ..self.parts() }).unwrap()
    }

    fn with_plugin(&self) -> SandboxManager {
        let mut parts = ManagerParts { types: self.bucket_types(), ..self.parts() };
        parts.registry.register(fake::plugin("bucket", &self.script)).unwrap();
        SandboxManager::open(parts).unwrap()
    }

    /// With a plugin that is not started before somebody asks for it.
    fn with_declared_plugin(&self) -> SandboxManager {
        let mut parts = ManagerParts { types: self.bucket_types(), ..self.parts() };
        let script = self.script.clone();
        let declaration = crate::registry::Declaration {
            name: "bucket".into(),
            origin: "company.strategies:Bucket".into(),
            resource_types: Vec::new(),
            verify: Arc::new(move || Ok(fake::plugin("bucket", &script))),
            last_check: Arc::new(crate::verification::CheckResult::default),
        };
        parts.registry.declare(declaration).unwrap();
        SandboxManager::open(parts).unwrap()
    }

    /// A bucket with one file `a` that holds `old`.
    fn bucket(&self, name: &str) -> PathBuf {
        let place = self.home().join("remote/s3").join(name);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("a"), "old").unwrap();
        place
    }
}

fn over(manager: &SandboxManager, urls: &[&str]) -> Result<Target> {
    let paths: Vec<&Path> = urls.iter().map(|url| Path::new(*url)).collect();
    let sandbox = manager.get_or_create_sandbox(&with_plan("p", &paths))?.sandbox;
    manager.find(sandbox.id.as_str())
}

#[test]
fn a_bucket_goes_the_whole_way() {
    let world = World::new();
    let (manager, place) = (world.with_plugin(), world.bucket("stock/data"));
    let target = over(&manager, &["S3://stock/data/"]).unwrap();
    let workspace = &target.workspaces[0];
    assert_eq!((&*target.sandbox.name, &*workspace.resource.location), ("data", "s3://stock/data"));
    assert_eq!(workspace.sandbox_ref.strategy_name, "bucket");
    assert_eq!(workspace.reason, "default_strategy of resource type s3-bucket");
    manager.write(&target, &path("a"), b"new").unwrap();
    assert_eq!(manager.read(&target, &path("a")).unwrap(), b"new");
    assert_eq!(manager.diff(&target, &[]).unwrap().workspaces[0].entries.len(), 1);
    manager.checkpoint(&target, None).unwrap();
    manager.commit(&target, &Default::default(), &CommitRules::default()).unwrap();
    assert_eq!(fs::read_to_string(place.join("a")).unwrap(), "new");
    let again = over(&manager, &["s3://stock/data"]).unwrap();
    assert_eq!(again.sandbox.id, target.sandbox.id, "however it is typed, it is the same");
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    assert!(world.leftovers().is_empty());
}

#[test]
fn a_bucket_gives_no_path_to_work_in() {
    let world = World::new();
    let manager = world.with_plugin();
    let directory = world.resource("proj");
    let refused = |result: Result<()>| match result {
        Err(Error::Unsupported { strategy, what: "give a path to work in", reason }) => {
            assert!(strategy == "bucket" && reason.contains("s3://stock"), "{strategy}: {reason}");
        }
        other => panic!("{other:?}"),
    };
    refused(manager.require_paths(&request(&[&directory, Path::new("s3://stock")])));
    assert!(manager.list(true).unwrap().is_empty() && world.script.calls().is_empty(), "nothing was made");
    manager.require_paths(&request(&[&directory])).unwrap();
    world.bucket("stock");
    let target = over(&manager, &["s3://stock"]).unwrap();
    refused(manager.sandbox_path(&target).map(drop));
}

#[test]
fn buckets_overlap_by_their_names_alone() {
    let world = World::new();
    let manager = world.with_plugin();
    let error = over(&manager, &["s3://stock", "s3://stock/data"]).unwrap_err();
    assert!(error.to_string().contains("s3://stock/data and s3://stock overlap"), "{error}");
    for name in ["stock", "stocks", "stock/data"] {
        world.bucket(name);
    }
    over(&manager, &["s3://stock"]).unwrap();
    over(&manager, &["s3://stocks"]).unwrap();
    let error = over(&manager, &["s3://stock/data"]).unwrap_err();
    assert!(
        matches!(&error, Error::Refused { reason, .. } if reason.contains("over part of this")),
        "{error:?}"
    );
}

#[test]
fn a_bucket_and_a_directory_make_one_sandbox() {
    let world = World::new();
    let manager = world.with_plugin();
    world.bucket("stock");
    let target = over(&manager, &[world.resource("proj").to_str().unwrap(), "s3://stock"]).unwrap();
    change_all(&manager, &target);
    assert_eq!(manager.diff(&target, &[]).unwrap().workspaces.len(), 2);
    assert_eq!(manager.destroy(&target, Uncommitted::Park).unwrap(), Ended::Parked { changes: 2 });
    let parked = manager.find_parked("proj").unwrap();
    manager.unpark(&parked, None).unwrap();
}

#[test]
fn the_handler_of_a_bucket_has_no_path_to_give() {
    let world = World::new();
    let manager = world.with_plugin();
    world.bucket("stock");
    let (plan, resource) = (PlanId::from_string("p"), Resource::at_url("s3-bucket", "s3://stock"));
    let handler = manager.handler("s3-bucket").unwrap();
    let made = handler.create_sandbox(&plan, &resource).unwrap();
    assert!(made.created && made.sandbox_path.is_none());
    let taken = handler.create_checkpoint(&plan, &resource).unwrap();
    let target = manager.find(made.sandbox_id.as_str()).unwrap();
    manager.write(&target, &path("a"), b"new").unwrap();
    assert!(handler.rollback_to(&plan, &resource, &taken.checkpoint_id).unwrap().success);
    assert_eq!(manager.read(&target, &path("a")).unwrap(), b"old");
    assert!(handler.project_access("adm:local", "read", &resource).permitted);
}

#[test]
fn a_strategy_that_is_not_there_is_laid_to_the_types_file() {
    let world = World::new();
    let manager = world.without_plugin();
    let error = over(&manager, &["s3://stock"]).unwrap_err();
    let Error::Config { file, message, hint: Some(hint), .. } = &error else { panic!("{error:?}") };
    assert!(file.ends_with("bucket.yaml") && message.contains("\"s3-bucket\""), "{error}");
    assert!(message.contains("\"bucket\"") && hint.contains("custom_strategies"), "{error}: {hint}");
    let asked = CreateRequest { strategy: Some("buckets".into()), ..request(&[Path::new("s3://stock")]) };
    let typed = manager.get_or_create_sandbox(&asked);
    assert!(matches!(typed, Err(Error::NotFound { what: "strategy", .. })), "what was typed is the caller's");
}

#[test]
fn files_have_strategies_of_their_own() {
    let world = World::new();
    let asked = CreateRequest { strategy: Some("overlay".into()), ..request(&[Path::new("s3://stock")]) };
    let error = world.with_plugin().get_or_create_sandbox(&asked).unwrap_err();
    assert!(error.to_string().contains("does not work on resource type s3-bucket"), "{error}");
}

#[test]
fn an_unfinished_commit_keeps_the_sandbox_of_a_bucket() {
    let world = World::new();
    let (manager, place) = (world.with_plugin(), world.bucket("stock"));
    let target = over(&manager, &["s3://stock"]).unwrap();
    manager.write(&target, &path("a"), b"new").unwrap();
    world.script.at("commit.apply", Fault::AlwaysFail);
    manager.commit(&target, &Default::default(), &CommitRules::default()).unwrap_err();
    manager.destroy(&target, Uncommitted::Discard).unwrap_err();
    world.script.calm();
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    assert_eq!(fs::read_to_string(place.join("a")).unwrap(), "new");
}

#[test]
fn a_bucket_that_cannot_be_cleaned_up_is_tried_again_by_gc_alone() {
    let world = World::new();
    world.bucket("stock/data");
    let manager = world.with_plugin();
    let target = over(&manager, &["s3://stock/data"]).unwrap();
    world.script.at("cleanup", Fault::AlwaysFail);
    manager.destroy(&target, Uncommitted::Discard).unwrap_err();
    let manager = world.with_declared_plugin();
    let before = world.script.calls();
    assert_eq!(manager.recover().unwrap(), []);
    assert_eq!(world.script.calls(), before, "other commands have nothing to do with it");
    let failed = manager.gc(Uncommitted::Park, false).unwrap().failed;
    assert!(failed.len() == 1 && failed[0].contains("scripted failure at cleanup"), "{failed:?}");
    world.script.calm();
    manager.gc(Uncommitted::Park, false).unwrap();
    assert_eq!((manager.list(false).unwrap(), world.leftovers()), (Vec::new(), Vec::new()));
}
