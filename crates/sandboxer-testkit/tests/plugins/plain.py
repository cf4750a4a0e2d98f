"""A strategy without a single import of ours: dicts and strings, a commit that takes the ref alone."""


class Plain:
    """Keeps its values in memory: what is small may be lost."""

    def __init__(self):
        self.values = {}
        self.kept = {}

    def create(self, plan_id, resource):
        return {"metadata": {"of": resource["id"]}}

    def read(self, ref, path):
        return self.values[path]

    def write(self, ref, path, content):
        self.values[path] = content
        return {"path": path, "kind": "created", "old_size": None, "new_size": len(content)}

    def diff(self, ref):
        changed = [name for name, value in self.values.items() if self.kept.get(name) != value]
        return {"entries": [{"path": name, "kind": "created"} for name in changed]}

    def commit(self, ref):
        self.kept = dict(self.values)
        with open("noted", "a") as noted:
            noted.write("committed\n")
        return {"notices": [{"path": "a", "message": "kept in memory"}]}

    def rollback(self, ref):
        self.values = dict(self.kept)
        return {"success": True, "restored_files": 1, "message": "as before"}

    def checkpoint(self, ref, checkpoint_id):
        return None

    def restore_checkpoint(self, ref, checkpoint_id):
        return {"success": False, "message": "there are none"}

    def cleanup(self, ref):
        return None
