"""Text that is no file anywhere: drafts in a sandbox's scratch directory, committed pages in the plugin's own."""

import os

from sandboxer_plugin import DiffEntry, NotFound, SandboxRef, state_directory


class Pages:
    """Keeps pages of text."""

    def create(self, plan_id, resource):
        os.mkdir(f"{resource.scratch}/drafts")
        return SandboxRef(metadata={"shelf": resource.location})

    def read(self, ref, path):
        for place in (self._draft(ref, path), self._page(path)):
            if os.path.exists(place):
                with open(place, "rb") as page:
                    return page.read()
        raise NotFound("file", path)

    def write(self, ref, path, content):
        with open(self._draft(ref, path), "wb") as draft:
            draft.write(content)

    def diff(self, ref):
        return [DiffEntry(path=name, kind="created", text="a draft") for name in sorted(os.listdir(self._draft(ref)))]

    def commit(self, ref, request):
        for name in os.listdir(self._draft(ref)):
            with open(os.path.join(state_directory(), "noted"), "a") as noted:
                noted.write(f"{name} is {self.read(ref, name).decode()}\n")
            os.rename(self._draft(ref, name), self._page(name))

    def rollback(self, ref):
        for name in os.listdir(self._draft(ref)):
            os.remove(self._draft(ref, name))

    def checkpoint(self, ref, checkpoint_id):
        raise NotImplementedError

    def restore_checkpoint(self, ref, checkpoint_id):
        raise NotImplementedError

    def cleanup(self, ref):
        pass

    def _draft(self, ref, *name):
        return os.path.join(ref.scratch, "drafts", *name)

    def _page(self, name):
        return os.path.join(state_directory(), f"page-{name}")
