mod containment;
mod custom;
mod hosts;
mod hub;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use sandboxer::wiring::{self, Setup};
use sandboxer_core::config::{DatabaseSettings, EventsSettings, KEYS, RunSettings, Settings};
use sandboxer_core::environment::{ExtensionDefinition, Health};
use sandboxer_core::service::{Sandbox, SandboxManager};
use sandboxer_core::verification::CheckResult;
use sandboxer_documents::git;
use sandboxer_plugin::extension::last_check;
use sandboxer_strategies::git_worktree;
use serde::Serialize;

use self::custom::CustomStrategyCheck;
use self::hosts::RemoteHost;
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, size, style, table};
use crate::cli::session::{App, current_dir};
use crate::cli::{Outcome, exit};

/// Look at what is here: state, configuration, strategies, kernel
///
/// Says which strategies work and why not, whether commands can be contained and by what, which layer decided each setting, and exits with 0 if sandboxes can be made. Of other machines it says which command checks them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox doctor
  sandbox doctor --json")]
pub struct Args {}

/// One finding.
#[derive(Serialize)]
struct Check {
    about: &'static str,
    ok: bool,
    detail: String,
}

#[derive(Serialize)]
struct StrategyHealth {
    strategy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    way: Option<&'static str>,
    place: PathBuf,
    healthy: bool,
    reason: String,
}

#[derive(Serialize)]
struct ExtensionHealth {
    extension: String,
    healthy: bool,
    reason: String,
    /// The result of verifying it; `None` for one that is not a plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<CheckResult>,
}

#[derive(Serialize)]
struct SettingReport {
    key: &'static str,
    value: String,
    decided_by: String,
}

#[derive(Serialize)]
struct Report {
    usable: bool,
    checks: Vec<Check>,
    strategies: Vec<StrategyHealth>,
    custom_strategies: Vec<CustomStrategyCheck>,
    containment: Vec<Check>,
    extensions: Vec<ExtensionHealth>,
    hosts: Vec<RemoteHost>,
    settings: Vec<SettingReport>,
}

pub fn run(app: &mut App, _args: &Args) -> Outcome {
    let report = examine(app)?;
    if app.ui.json {
        app.ui.document(&report)?;
    } else {
        show(&mut app.ui, &report)?;
    }
    Ok(if report.usable { exit::OK } else { exit::ERROR })
}

/// Everything is looked at, whatever is wrong with the rest.
fn examine(app: &App) -> Result<Report, CliError> {
    let here = current_dir()?;
    let (config, settings) = configuration(app, &here);
    let home = existing_ancestor(&app.places.home);
    let mut checks = vec![state_place(app, home), state_content(app, &settings), config, kernel(), user()];
    checks.extend(project(app, &here));
    checks.push(hub::check(&app.places.home, &settings));
    let (catalogue, extensions) = extensions(app);
    checks.push(catalogue);
    let scratch = settings.scratch.as_deref().map_or(home, existing_ancestor);
    let strategies = strategies(&[scratch, &here]);
    let custom_strategies = custom::check_all(app, &settings)?;
    let works = strategies.iter().any(|s| s.healthy && s.strategy != "none");
    let usable = checks.iter().all(|check| check.ok) && works;
    let containment = containment::checks();
    let (hosts, settings) = (hosts::remote_hosts(app), settings_report(&settings));
    Ok(Report { usable, checks, strategies, custom_strategies, containment, extensions, hosts, settings })
}

fn check(about: &'static str, result: Result<String, String>) -> Check {
    match result {
        Ok(detail) => Check { about, ok: true, detail },
        Err(detail) => Check { about, ok: false, detail },
    }
}

fn existing_ancestor(path: &Path) -> &Path {
    path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"))
}

fn state_place(app: &App, existing: &Path) -> Check {
    let place = format!("{} ({})", app.places.home.display(), app.places.home_reason);
    let result = match try_to_write(existing) {
        Ok(()) => Ok(format!("{place}, {}", filesystem(existing))),
        Err(error) => Err(format!("{place} cannot be written: {error}")),
    };
    check("state directory", result)
}

/// Permission bits do not tell: root may write where nothing can be made.
fn try_to_write(directory: &Path) -> std::io::Result<()> {
    let probe = directory.join(format!(".sandboxer-doctor-{}", std::process::id()));
    std::fs::create_dir(&probe)?;
    std::fs::remove_dir(&probe)
}

fn filesystem(path: &Path) -> String {
    let kind =
        rustix::fs::statfs(path).map_or("unknown filesystem", |stat| filesystem_name(stat.f_type as u64));
    let free = rustix::fs::statvfs(path).map(|stat| size(stat.f_bavail.saturating_mul(stat.f_frsize)));
    format!("{kind}, {} free", free.unwrap_or_else(|_| "unknown".to_owned()))
}

/// Names of the magic numbers in statfs(2).
fn filesystem_name(magic: u64) -> &'static str {
    match magic & 0xffff_ffff {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlayfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0xca45_1a4e => "bcachefs",
        0x6969 => "nfs",
        0x6573_5546 => "fuse",
        0x0102_1997 => "9p",
        _ => "another filesystem",
    }
}

/// Opens the state as it is, without recovering anything.
fn state_content(app: &App, settings: &Settings) -> Check {
    if !wiring::has_state(&app.places.home) {
        return check("state", Ok("none yet; the first sandbox makes it".to_owned()));
    }
    let opened = open(app, settings).and_then(|manager| Ok(manager.list(false)?));
    check("state", opened.map(|sandboxes| state_sentence(&sandboxes)).map_err(|error| told(&error)))
}

fn open(app: &App, settings: &Settings) -> Result<SandboxManager, CliError> {
    let setup = Setup {
        settings: settings.clone(),
        type_files: app.places.type_files()?,
        ..Setup::quiet(&app.places.home)
    };
    Ok(wiring::open(setup)?)
}

fn told(error: &CliError) -> String {
    error.hints.iter().fold(error.message.clone(), |text, hint| format!("{text}; {hint}"))
}

fn state_sentence(sandboxes: &[Sandbox]) -> String {
    let mut text = output::count(sandboxes.len(), "open sandbox");
    for (first, second) in overlapping(sandboxes) {
        text.push_str(&format!("; {first} and {second} overlap, the first to commit wins"));
    }
    text
}

fn overlapping(sandboxes: &[Sandbox]) -> Vec<(&str, &str)> {
    let meet = |a: &Sandbox, b: &Sandbox| {
        a.workspaces.iter().any(|x| b.workspaces.iter().any(|y| x.resource.overlaps(&y.resource)))
    };
    let later = |index: usize| &sandboxes[index + 1..];
    let pairs = sandboxes.iter().enumerate().flat_map(|(index, a)| later(index).iter().map(move |b| (a, b)));
    pairs.filter(|(a, b)| meet(a, b)).map(|(a, b)| (a.name.as_str(), b.name.as_str())).collect()
}

/// The settings; if they cannot be used, those of the user alone, and the reason.
fn configuration(app: &App, here: &Path) -> (Check, Settings) {
    let file = app.places.config.as_deref();
    let place = match file {
        Some(file) if file.exists() => file.display().to_string(),
        Some(file) => format!("{} (not there)", file.display()),
        None => "none".to_owned(),
    };
    match app.settings(here) {
        Ok(settings) => (check("configuration", Ok(place)), settings),
        // The project's file is not to be used; the user's own may still be right.
        Err(error) => {
            let own = app.own_settings().unwrap_or_default();
            (check("configuration", Err(told(&error))), own)
        }
    }
}

fn project(app: &App, here: &Path) -> Option<Check> {
    let file = app.places.layers(here).project_file?;
    let trust = sandboxer_core::config::TrustStore::new(&app.places.home);
    let state = match trust.is_trusted(&file) {
        Ok(true) => "trusted",
        Ok(false) => "untrusted: it may only tighten",
        Err(_) => "unreadable",
    };
    Some(check("project file", Ok(format!("{} ({state})", file.display()))))
}

fn kernel() -> Check {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_else(|_| "of unknown release".to_owned());
    let release = release.trim();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let result = match rustix::fs::openat2(CWD, ".", flags, Mode::empty(), ResolveFlags::BENEATH) {
        Ok(_) => Ok(format!("Linux {release}, openat2 works")),
        Err(errno) => Err(format!("Linux {release} has no openat2 ({errno}): paths cannot be confined")),
    };
    check("kernel", result)
}

fn user() -> Check {
    let uid = rustix::process::geteuid();
    let detail = if uid.is_root() { "root".to_owned() } else { format!("uid {}", uid.as_raw()) };
    check("user", Ok(detail))
}

fn strategies(places: &[&Path]) -> Vec<StrategyHealth> {
    let program = std::env::current_exe().ok();
    let mut places: Vec<&Path> = places.to_vec();
    // What works is a matter of the filesystem, not of the directory.
    places.dedup_by_key(|place| place.metadata().map(|m| m.dev()).ok());
    let health = |place: &Path| {
        let found = sandboxer_strategies::probe(place, program.as_deref()).into_iter();
        let place = place.to_path_buf();
        found.map(move |found| StrategyHealth {
            strategy: found.strategy.clone(),
            way: found.way,
            place: place.clone(),
            healthy: found.healthy,
            reason: with_remedy(found),
        })
    };
    places.into_iter().flat_map(health).collect()
}

/// Why, and what to do where somebody can do something about it.
fn with_remedy(found: sandboxer_strategies::StrategyHealth) -> String {
    if found.healthy || found.strategy != git_worktree::NAME {
        return found.reason;
    }
    format!(
        "{}; install git {}, or use --strategy overlay for checkouts, which knows nothing of git",
        found.reason,
        git::OLDEST
    )
}

/// What makes environments, and whether it can now. None is needed for a sandbox of this machine's namespaces.
fn extensions(app: &App) -> (Check, Vec<ExtensionHealth>) {
    match app.extension_health() {
        Ok(found) => {
            let sentence = format!("read; {}", output::count(found.len(), "extension"));
            let home = &app.places.home;
            let health = |(known, health)| extension_health(&known, health, last_check(home, &known));
            (check("catalogue", Ok(sentence)), found.into_iter().map(health).collect())
        }
        Err(error) => (check("catalogue", Err(told(&error))), Vec::new()),
    }
}

fn extension_health(
    known: &ExtensionDefinition,
    health: Health,
    check: Option<CheckResult>,
) -> ExtensionHealth {
    let (healthy, reason) = match health {
        Health::Healthy => (true, "it can be used".to_owned()),
        Health::Limited(reason) => (true, format!("it can be used; {reason}")),
        Health::Unhealthy(reason) => (false, reason),
        Health::Undetected(reason) => (false, format!("not here: {reason}")),
    };
    ExtensionHealth { extension: known.id.clone(), healthy, reason, check }
}

fn settings_report(settings: &Settings) -> Vec<SettingReport> {
    let report = |name: &'static str| SettingReport {
        key: name,
        value: value_of(settings, name).unwrap_or_else(|| "-".to_owned()),
        decided_by: settings.origin(name).to_owned(),
    };
    KEYS.iter().map(|key| report(key.name)).collect()
}

fn value_of(settings: &Settings, key: &str) -> Option<String> {
    let list = |items: &[String]| (!items.is_empty()).then(|| items.join(":"));
    match key {
        "actor_type" => settings.actor_type.clone(),
        "commit.policy" => {
            list(&settings.policies.iter().map(|file| file.display().to_string()).collect::<Vec<_>>())
        }
        "copy.exclude" => list(&settings.exclude),
        "copy.include" => list(&settings.include),
        "copy.threads" => settings.threads.map(|n| n.to_string()),
        "copy.keep_base" => settings.keep_base.map(output::size),
        "state.max_size" => Some(output::size(settings.max_size)),
        "state.min_free" => Some(settings.min_free.to_string()),
        "overlay.durability" => Some(settings.durability.as_str().to_owned()),
        "project" => settings.project.clone(),
        "quotas" => list(&settings.quotas.entries.keys().map(ToString::to_string).collect::<Vec<_>>()),
        "sandbox.custom_strategies" => list(&settings.custom_strategies.keys().cloned().collect::<Vec<_>>()),
        "sandbox.default_ttl" => settings.default_ttl.map(|ttl| output::span(ttl.as_secs())),
        "sandbox.strategy" => settings.sandbox_strategy.clone(),
        "state.lock_wait" => Some(output::span(settings.lock_wait.as_secs() as i64)),
        "state.scratch" => settings.scratch.as_ref().map(|path| path.display().to_string()),
        _ => database_value_of(&settings.database, key)
            .or_else(|| events_value_of(&settings.events, key))
            .or_else(|| run_value_of(&settings.run, key)),
    }
}

fn database_value_of(database: &DatabaseSettings, key: &str) -> Option<String> {
    let span = |time: std::time::Duration| output::span(time.as_secs() as i64);
    match key {
        "database.allow_ddl" => (!database.allow_ddl.is_empty()).then(|| database.allow_ddl.join(",")),
        "database.block_limit" => Some(database.block_limit.map_or_else(|| "none".to_owned(), span)),
        "database.lock_timeout" => Some(span(database.lock_timeout)),
        "database.turn_timeout" => Some(span(database.turn_timeout)),
        _ => None,
    }
}

fn events_value_of(events: &EventsSettings, key: &str) -> Option<String> {
    match key {
        "events.hub" => events.hub.clone(),
        "events.token" => events.token.as_ref().map(ToString::to_string),
        _ => None,
    }
}

fn run_value_of(run: &RunSettings, key: &str) -> Option<String> {
    let list = |items: &[String], separator: &str| (!items.is_empty()).then(|| items.join(separator));
    match key {
        "run.isolation" => Some(run.isolation.as_str().to_owned()),
        "run.network" => Some(run.network.as_str().to_owned()),
        "run.allow_hosts" => list(&run.allow_hosts, ","),
        "run.hide" => list(&run.hide, ":"),
        "run.show" => list(&run.show, ":"),
        "run.env" => list(&run.env, ":"),
        "run.memory" => run.memory.map(output::size),
        "run.pids" => run.pids.map(|count| count.to_string()),
        "run.cpus" => run.cpus.map(|cpus| cpus.to_string()),
        "run.timeout" => run.timeout.map(|time| output::span(time.as_secs() as i64)),
        "run.disk_reserve" => Some(run.disk_reserve.to_string()),
        _ => None,
    }
}

fn show(ui: &mut Ui, report: &Report) -> Result<(), CliError> {
    report.checks.iter().try_for_each(|check| show_check(ui, check))?;
    for health in &report.strategies {
        let place = output::name(health.place.as_os_str().as_encoded_bytes());
        let way = health.way.map(|way| format!("{way}, ")).unwrap_or_default();
        let reason = output::sentence(&health.reason);
        let strategy = &health.strategy;
        ui.line(format_args!("{}  {strategy:<16} {way}in {place}: {reason}", mark(ui, health.healthy)))?;
    }
    report.custom_strategies.iter().try_for_each(|check| custom::show(ui, check))?;
    report.containment.iter().try_for_each(|check| show_check(ui, check))?;
    for health in &report.extensions {
        let (extension, reason) = (output::name(&health.extension), output::sentence(&health.reason));
        ui.line(format_args!("{}  {extension:<16} {reason}", mark(ui, health.healthy)))?;
    }
    report.hosts.iter().try_for_each(|remote| hosts::show(ui, remote))?;
    ui.line("")?;
    let row =
        |s: &SettingReport| vec![s.key.to_owned(), output::name(&s.value), output::sentence(&s.decided_by)];
    let rows: Vec<Vec<String>> = report.settings.iter().map(row).collect();
    ui.bytes(table(&["SETTING", "VALUE", "DECIDED BY"], &rows).as_bytes())?;
    ui.flush()?;
    let contains = report.containment.first().is_some_and(|check| check.ok);
    ui.note(match (report.usable, contains) {
        (true, true) => "sandboxes can be made here, and commands in them contained",
        (true, false) => {
            "sandboxes can be made here; commands in them cannot be contained, but for --isolation files"
        }
        (false, _) => "sandboxes cannot be made here: see the lines marked no",
    });
    Ok(())
}

fn show_check(ui: &mut Ui, check: &Check) -> Result<(), CliError> {
    let (mark, detail) = (mark(ui, check.ok), output::sentence(&check.detail));
    ui.line(format_args!("{mark}  {:<16} {detail}", check.about))
}

fn mark(ui: &Ui, ok: bool) -> String {
    if ok { ui.paint(style::GOOD, "ok") } else { ui.paint(style::BAD, "no") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_setting_has_a_value_to_show() {
        let settings = Settings {
            actor_type: Some("agt".into()),
            exclude: vec!["a".into(), "b".into()],
            include: vec!["c".into()],
            threads: Some(2),
            keep_base: Some(1),
            project: Some("p".into()),
            sandbox_strategy: Some("none".into()),
            default_ttl: Some(jiff::SignedDuration::from_secs(7200)),
            scratch: Some("/s".into()),
            policies: vec!["/p.yaml".into()],
            database: DatabaseSettings { allow_ddl: vec!["truncate".into()], ..DatabaseSettings::default() },
            events: EventsSettings {
                hub: Some("https://hub.example/".into()),
                token: Some(sandboxer_core::config::TokenRef::Variable("HUB".into())),
            },
            run: RunSettings {
                allow_hosts: vec!["a.example:443".into(), "b.example".into()],
                hide: vec!["~/x".into()],
                show: vec!["~/.npmrc".into()],
                env: vec!["DOCKER_HOST".into()],
                memory: Some(2 << 30),
                pids: Some(512),
                cpus: Some(1.5),
                timeout: Some(std::time::Duration::from_secs(600)),
                ..RunSettings::default()
            },
            ..Settings::default()
        };
        let missing: Vec<&str> =
            KEYS.iter().map(|key| key.name).filter(|key| value_of(&settings, key).is_none()).collect();
        assert_eq!(missing, ["quotas", "sandbox.custom_strategies"]);
        assert_eq!(value_of(&settings, "copy.exclude").unwrap(), "a:b");
        assert_eq!(value_of(&settings, "sandbox.default_ttl").unwrap(), "2h");
        assert_eq!(value_of(&settings, "run.allow_hosts").unwrap(), "a.example:443,b.example");
        assert_eq!(value_of(&settings, "run.disk_reserve").unwrap(), "1% of the filesystem");
    }

    #[test]
    fn filesystems_have_names() {
        assert_eq!(filesystem_name(0xef53), "ext4");
        assert_eq!(filesystem_name(1), "another filesystem");
        assert!(filesystem(Path::new("/")).ends_with("free"));
        assert_eq!(existing_ancestor(Path::new("/no/such/thing")), Path::new("/"));
        assert!(try_to_write(Path::new("/proc")).is_err());
    }
}
