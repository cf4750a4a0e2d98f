"""A strategy in one page: work on a copy of a directory, and copy back what changed.
The scratch directory has `base` (the directory as it was), `tree` (where the work is done) and a copy for each checkpoint.
"""

import os
from urllib.parse import quote

from sandboxer_plugin import Capabilities, CommitResult, Conflicts, NotFound, RollbackResult, SandboxRef, Uncommittable, trees


class MinimalStrategy:
    """Works on a full copy of a directory."""

    capabilities = Capabilities(file_tree=True, resource_types=["fs-directory"])

    def create(self, plan_id, resource):
        base, tree = self._place(resource, "base"), self._place(resource, "tree")
        trees.mirror(resource.location, base)
        trees.mirror(base, tree)
        return SandboxRef(metadata={"path": tree, "base": resource.location})

    def read(self, ref, path):
        return trees.read(ref["path"], path)

    def write(self, ref, path, content):
        return trees.write(ref["path"], path, content)

    def diff(self, ref):
        return trees.compare(self._place(ref, "base"), ref["path"])

    def commit(self, ref):
        base, frozen = self._place(ref, "base"), self._place(ref, "frozen")
        if refused := [(entry.path, entry.refused) for entry in self.diff(ref) if entry.refused]:
            raise Uncommittable(refused)
        trees.mirror(ref["path"], frozen)  # programs may go on writing to the tree
        entries = trees.compare(base, frozen)
        if changed := trees.overlaps(entries, trees.compare(base, ref["base"])):
            raise Conflicts(changed)
        notices = trees.apply(entries, frozen, ref["base"])
        trees.apply(entries, frozen, base)
        return CommitResult(entries=entries, notices=notices)

    def rollback(self, ref):
        return RollbackResult(restored_files=trees.mirror(self._place(ref, "base"), ref["path"]))

    def checkpoint(self, ref, checkpoint_id):
        trees.mirror(ref["path"], self._place(ref, "checkpoint", checkpoint_id))

    def restore_checkpoint(self, ref, checkpoint_id):
        kept = self._place(ref, "checkpoint", checkpoint_id)
        if not os.path.isdir(kept):
            raise NotFound("checkpoint", checkpoint_id)
        return RollbackResult(restored_files=trees.mirror(kept, ref["path"]), checkpoint_id=checkpoint_id)

    def cleanup(self, ref):
        """Nothing to do: everything is in the scratch directory, which the host removes."""

    def _place(self, owner, *names):
        return os.path.join(owner.scratch, quote("-".join(names), safe=""))
