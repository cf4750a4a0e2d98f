//! A tree here, a machine to send it to, and two connections that are already there: ours, and one for whoever types `tar | ssh`.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use sandboxer_core::contract::{CancelFlag, NoProgress};
use sandboxer_remote::{Mirror, Moved, Ssh};
use sandboxer_testkit::host::RemoteHost;

use super::scene::connection;
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, run};
use crate::place::{Place, tool};
use crate::rows::{Bench, remove};
use crate::tree::TreeSpec;

/// Everything twice here and twice there, and room for what is beside it.
const COPIES: u64 = 3;

/// Both ends.
pub struct Wire {
    spec: TreeSpec,
    ssh: Ssh,
    count: Cell<usize>,
    host: RemoteHost,
    place: Place,
}

/// A copy on the host, and what both sides remember of it.
pub struct Copy {
    name: String,
    record: PathBuf,
}

impl Wire {
    /// Writes the tree, starts the machine, and connects.
    pub fn new(bench: &Bench, disk: &Path) -> Result<Self> {
        let host = RemoteHost::plain().map_err(Failure::Skipped)?;
        let place = Place::disk(disk, COPIES * bench.spec.bytes_on_disk())?;
        crate::say(&format!("writing {} files on {}", bench.spec.files, place.name));
        bench.spec.write(&place.root().join("tree"), &bench.interrupt)?;
        let ssh = connection(&host, &place.root().join("ours"))?;
        ssh.connect().during("connect to", Path::new(host.name()))?;
        let wire = Self { spec: bench.spec, ssh, count: Cell::new(0), host, place };
        tool(wire.by_hand().args(["-M", "-N", "-f", "--", wire.host.name()]))?;
        Ok(wire)
    }

    /// The tree here.
    pub fn tree(&self) -> PathBuf {
        self.place.root().join("tree")
    }

    /// A place on the host where nothing is yet.
    pub fn nothing(&self) -> Copy {
        let name = format!("copy{}", self.count.replace(self.count.get() + 1));
        Copy { record: self.place.root().join(format!("{name}.list")), name }
    }

    /// Where a copy is, as seen from here.
    pub fn seen_from_here(&self, copy: &Copy) -> PathBuf {
        self.host.home().join(&copy.name)
    }

    /// Times a send.
    pub fn send(&self, copy: &Copy) -> Result<(Sample, Moved)> {
        self.timed(copy, |mirror| mirror.send())
    }

    /// Times a fetch.
    pub fn fetch(&self, copy: &Copy) -> Result<(Sample, Moved)> {
        self.timed(copy, |mirror| mirror.fetch())
    }

    fn timed(
        &self,
        copy: &Copy,
        work: impl FnOnce(&Mirror<'_>) -> sandboxer_core::Result<Moved>,
    ) -> Result<(Sample, Moved)> {
        let (remote, lists) = (format!("/root/{}", copy.name), format!("/root/{}.lists", copy.name));
        let (tree, cancel) = (self.tree(), CancelFlag::default());
        let mirror = Mirror {
            shell: &self.ssh,
            local: &tree,
            remote: &remote,
            lists: &lists,
            record: &copy.record,
            compress: false,
            progress: &NoProgress,
            cancel: &cancel,
        };
        self.settle()?;
        let started = Instant::now();
        let moved = work(&mirror).during("carry over", &tree)?;
        Ok((Sample::in_process(started.elapsed()), moved))
    }

    /// Times `tar | ssh HOST tar` into a place on the host.
    pub fn tar_there(&self, copy: &Copy) -> Result<Sample> {
        let unpack = format!("mkdir /root/{0} && tar -C /root/{0} -xf -", copy.name);
        self.piped("tree=$1; shift; tar -C \"$tree\" -cf - . | \"$@\"", &self.tree(), &unpack)
    }

    /// Times `ssh HOST tar | tar` into a directory here, which is made.
    pub fn tar_back(&self, copy: &Copy, into: &Path) -> Result<Sample> {
        fs::create_dir(into).during("create directory", into)?;
        let pack = format!("tar -C /root/{} -cf - .", copy.name);
        self.piped("into=$1; shift; \"$@\" | tar -C \"$into\" -xf -", into, &pack)
    }

    fn piped(&self, script: &str, directory: &Path, there: &str) -> Result<Sample> {
        self.settle()?;
        let ssh = self.by_hand();
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(directory).arg(ssh.get_program()).args(ssh.get_args());
        shell.args(["--", self.host.name(), there]);
        run(&mut shell, &self.place.root().join("output"), &[0])
    }

    /// `ssh` with the connection that stays.
    fn by_hand(&self) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(self.host.ssh_config()).args(["-o", "BatchMode=yes", "-S"]);
        ssh.arg(self.place.root().join("by-hand"));
        ssh
    }

    /// Fails unless the last file of the tree is in a copy of it.
    pub fn expect_whole(&self, copy: &Path) -> Result<()> {
        let last = copy.join(self.spec.file_path(self.spec.files - 1));
        if last.is_file() { Ok(()) } else { Err(Failure::new(format!("{} was not written", last.display()))) }
    }

    /// Removes a copy; not timed.
    pub fn forget(&self, copy: &Copy) -> Result<()> {
        remove(&self.seen_from_here(copy))
    }

    /// Writes out what is dirty on either side.
    fn settle(&self) -> Result<()> {
        let home = self.host.home();
        let there = File::open(home).during("open", home)?;
        rustix::fs::syncfs(there).during("sync", home)?;
        self.place.settle()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.ssh.disconnect();
        // The machine goes anyway, and the connection with it.
        let _ = tool(self.by_hand().args(["-O", "exit", "--", self.host.name()]));
    }
}
