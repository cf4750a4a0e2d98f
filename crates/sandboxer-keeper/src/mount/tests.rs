//! Mounts on the host, for those who may make them.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandboxer_testkit::skip;
use tempfile::TempDir;

use super::*;

/// The directories of an overlay; unmounted and removed when dropped.
struct Case {
    _temp: TempDir,
    overlay: Overlay,
}

impl Case {
    /// `None`, and a line that says why, where nothing can be mounted.
    fn new() -> Option<Self> {
        Self::below(Path::new(""))
    }

    fn below(path: &Path) -> Option<Self> {
        let temp = tempfile::tempdir().unwrap();
        if let Err(why) = try_host(temp.path()) {
            skip(&why);
            return None;
        }
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "a trial leaves nothing");
        let base = temp.path().join(path);
        let [lower, upper, work, at] = ["lower", "upper", "work", "at"].map(|name| base.join(name));
        [&lower, &upper, &work, &at].into_iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
        fs::write(lower.join("file"), "lower").unwrap();
        fs::create_dir(lower.join("dir")).unwrap();
        fs::write(lower.join("dir/inner"), "lower").unwrap();
        Some(Self { _temp: temp, overlay: Overlay { lowers: vec![lower], upper, work, at, volatile: true } })
    }

    fn mount(&self) -> Result<()> {
        mount(&self.overlay, Kind::Host)
    }

    /// Unmounts, in the end: a process that another test is starting holds what is open for a moment.
    fn unmount(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while unmount(&self.overlay.at).unwrap() != Unmounted::Done {
            assert!(Instant::now() < deadline && is_mounted(&self.overlay.at).unwrap());
            std::thread::yield_now();
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.overlay.at.join(name)
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if is_mounted(&self.overlay.at).unwrap_or(false) {
            self.unmount();
        }
    }
}

fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_char_device() && m.rdev() == 0)
}

#[test]
fn what_is_done_inside_stays_in_the_upper() {
    let Some(case) = Case::new() else { return };
    assert!(!is_mounted(&case.overlay.at).unwrap());
    assert_eq!(unmount(&case.overlay.at).unwrap(), Unmounted::NotMounted);
    case.mount().unwrap();
    assert!(is_mounted(&case.overlay.at).unwrap());
    assert!(!is_mounted(&case.at("dir")).unwrap() && !is_mounted(&case.at("none")).unwrap());
    fs::write(case.at("file"), "upper").unwrap();
    fs::remove_dir_all(case.at("dir")).unwrap();
    case.unmount();
    let (lower, upper) = (&case.overlay.lowers[0], &case.overlay.upper);
    assert_eq!(fs::read_to_string(lower.join("file")).unwrap(), "lower");
    assert_eq!(fs::read_to_string(upper.join("file")).unwrap(), "upper");
    assert!(is_whiteout(&upper.join("dir")) && lower.join("dir/inner").exists());
    assert_eq!(fs::read_dir(&case.overlay.at).unwrap().count(), 0);
}

#[test]
fn a_volatile_mount_leaves_its_mark_and_mounts_again_after_fresh_work() {
    let Some(mut case) = Case::new() else { return };
    case.mount().unwrap();
    fs::write(case.at("new"), "kept").unwrap();
    case.unmount();
    let refused = crate::chain::in_words(&case.mount().unwrap_err());
    assert!(refused.starts_with("cannot mount overlay at /") && refused.contains("volatile"), "{refused}");
    assert!(fresh_work(&case.overlay.work).unwrap());
    case.overlay.volatile = false;
    case.mount().unwrap();
    assert_eq!(fs::read_to_string(case.at("new")).unwrap(), "kept");
    case.unmount();
    assert!(!fresh_work(&case.overlay.work).unwrap());
}

#[test]
fn names_are_never_options_and_never_too_long() {
    let odd = OsStr::from_bytes(b"a:b,redirect_dir=on,\\ \n\xff");
    let long = "n".repeat(240);
    let mut deep = PathBuf::from(odd);
    while deep.as_os_str().len() < 3700 {
        deep.push(&long);
    }
    for path in [PathBuf::from(odd), deep] {
        let Some(case) = Case::below(&path) else { return };
        case.mount().unwrap();
        assert_eq!(fs::read_to_string(case.at("file")).unwrap(), "lower");
        assert!(is_mounted(&case.overlay.at).unwrap());
        assert_eq!(
            fs::rename(case.at("dir"), case.at("moved")).unwrap_err().kind(),
            io::ErrorKind::CrossesDevices
        );
        case.unmount();
    }
}

#[test]
fn every_way_of_naming_layers_gives_the_same_mount() {
    let Some(mut case) = Case::new() else { return };
    let top = case.overlay.upper.with_file_name("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("file"), "top").unwrap();
    case.overlay.lowers.insert(0, top);
    for way in [Way::Descriptor, Way::Name, Way::List] {
        fresh_work(&case.overlay.work).unwrap();
        let layers = Layers::open(&case.overlay).unwrap();
        let mounted = layers.mount(&case.overlay, Kind::Host, way).map_err(|r| r.in_words()).unwrap();
        let shown = PathBuf::from(name_of(&mounted));
        assert_eq!(fs::read_to_string(shown.join("file")).unwrap(), "top", "{way:?}");
        assert_eq!(fs::read_to_string(shown.join("dir/inner")).unwrap(), "lower", "{way:?}");
    }
}

#[test]
fn a_mount_that_somebody_works_in_stays_and_its_holder_is_known() {
    let Some(case) = Case::new() else { return };
    case.mount().unwrap();
    let dev = fs::metadata(&case.overlay.at).unwrap().dev();
    let us = |holders: Vec<Holder>| holders.iter().any(|holder| holder.pid == std::process::id());
    assert!(!us(holders(dev)));
    let file = fs::File::open(case.at("file")).unwrap();
    assert_eq!(unmount(&case.overlay.at).unwrap(), Unmounted::Busy);
    assert!(us(holders(dev)) && is_mounted(&case.overlay.at).unwrap());
    drop(file);
    case.unmount();
}

#[test]
fn an_open_file_holds_also_where_it_shows_another_device() {
    let Some(mut case) = Case::new() else { return };
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        skip("there is no /dev/shm");
        return;
    };
    fs::write(elsewhere.path().join("far"), "far").unwrap();
    case.overlay.lowers.push(elsewhere.path().to_path_buf());
    case.mount().unwrap();
    let dev = fs::metadata(&case.overlay.at).unwrap().dev();
    let _file = fs::File::open(case.at("far")).unwrap();
    assert!(holders(dev).iter().any(|holder| holder.pid == std::process::id()));
}

#[test]
fn nothing_is_mounted_twice() {
    let Some(case) = Case::new() else { return };
    case.mount().unwrap();
    let Err(Error::Io { source, .. }) = case.mount() else { panic!("mounted twice") };
    assert_eq!(source.kind(), io::ErrorKind::AlreadyExists);
    case.unmount();
    assert!(!is_mounted(&case.overlay.at).unwrap());
}

#[test]
fn setuid_programs_and_devices_give_nothing() {
    let Some(case) = Case::new() else { return };
    case.mount().unwrap();
    fs::set_permissions(case.at("file"), fs::Permissions::from_mode(0o4755)).unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = case.overlay.at.to_str().unwrap();
    let line = table.lines().find(|line| line.contains(at)).unwrap();
    assert!(line.contains("nosuid,nodev") && line.contains("- overlay sandbox "), "{line}");
    for option in ["metacopy=off", "index=off", "redirect_dir=nofollow"] {
        let other = ["redirect_dir=on", "redirect_dir=follow", "metacopy=on", "index=on"];
        assert!(!other.iter().any(|other| line.contains(other)), "{option}: {line}");
    }
}

#[test]
fn submounts_are_found_under_any_name() {
    let Some(mut case) = Case::new() else { return };
    let base = case.overlay.at.parent().unwrap().canonicalize().unwrap();
    assert_eq!(submounts(&base).unwrap(), Vec::<PathBuf>::new());
    case.overlay.at = base.join(OsStr::from_bytes(b"a b\tc\nd\\040#\xff"));
    fs::create_dir(&case.overlay.at).unwrap();
    case.mount().unwrap();
    assert_eq!(submounts(&base).unwrap(), [case.overlay.at.clone()]);
    assert_eq!(submounts(&case.overlay.at).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(submounts(&base.join("lower")).unwrap(), Vec::<PathBuf>::new());
}

#[test]
fn a_refusal_says_what_is_wrong() {
    let Some(case) = Case::new() else { return };
    let refused = |overlay: &Overlay| crate::chain::in_words(&mount(overlay, Kind::Host).unwrap_err());
    if let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") {
        let overlay = Overlay { work: elsewhere.path().to_path_buf(), ..case.overlay.clone() };
        assert!(refused(&overlay).contains("different filesystems"));
    }
    let many = Overlay { lowers: vec![case.overlay.lowers[0].clone(); 501], ..case.overlay.clone() };
    assert!(refused(&many).contains("501"), "{}", refused(&many));
    case.mount().unwrap();
    let on_it = ["upper2", "work2", "at2"].map(|name| case.at(name));
    on_it.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let [upper, work, at] = on_it;
    let nested = Overlay { upper, work, at, ..case.overlay.clone() };
    assert!(refused(&nested).contains("on an overlay itself"), "{}", refused(&nested));
}

#[test]
fn what_cannot_be_a_layer_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let dir = |name: &str| temp.path().join(name);
    fs::create_dir(dir("d")).unwrap();
    fs::write(dir("f"), "").unwrap();
    std::os::unix::fs::symlink(dir("d"), dir("l")).unwrap();
    for bad in ["none", "f", "l"] {
        let overlay = Overlay {
            lowers: vec![dir(bad)],
            upper: dir("d"),
            work: dir("d"),
            at: dir("d"),
            volatile: false,
        };
        let Err(Error::Io { step, path, .. }) = mount(&overlay, Kind::Host) else { panic!("{bad}") };
        assert_eq!((step, path), (OPEN, dir(bad)));
    }
}

#[test]
fn a_trial_says_why_it_failed() {
    assert!(try_host(Path::new("/no/such")).unwrap_err().contains("/no/such"));
}
