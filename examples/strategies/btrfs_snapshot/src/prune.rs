//! What the patterns leave out is no part of a sandbox.

use rustix::fs::FileType;
use sandboxer_core::Result;
use sandboxer_core::model::RelPath;
use sandboxer_fs::filter::Filter;
use sandboxer_fs::list;
use sandboxer_fs::manifest::join;
use sandboxer_fs::root::Root;

/// Removes from `root` what does not pass. Directories that were emptied by that stay, as they do in a copy.
pub fn prune(root: &Root, filter: &Filter) -> Result<()> {
    let mut waiting: Vec<Option<RelPath>> = vec![None];
    while let Some(dir) = waiting.pop() {
        for listed in list::names_and_types(&root.dir(dir.as_ref())?)? {
            let path = join(dir.as_ref(), &listed.name)?;
            let is_dir = listed.kind == FileType::Directory;
            if !filter.passes(&path, is_dir) {
                sandboxer_fs::remove_below(root, &path)?;
            } else if is_dir {
                waiting.push(Some(path));
            }
        }
    }
    Ok(())
}
