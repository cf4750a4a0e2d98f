"""Strategies that fail, lie or die. Every start is noted in a file."""

import os
import time

from minimal import MinimalStrategy
from sandboxer_plugin import Capabilities, CommitResult, Notice, RollbackResult, SandboxRef, results, trees

TOKEN = os.environ['TOKEN']


def note(what):
    with open(os.environ['NOTES'], 'a') as notes:
        notes.write(what + '\n')


note(f'start {os.getpid()}')


class Honest(MinimalStrategy):
    """Says the truth."""


class CannotCleanUp(MinimalStrategy):
    def cleanup(self, ref):
        raise RuntimeError('the bucket is stuck')


class Slow(MinimalStrategy):
    """Is slow between its look at the original and its changes."""

    def commit(self, ref):
        apply = trees.apply
        trees.apply = lambda *arguments: (time.sleep(1), apply(*arguments))[1]
        return super().commit(ref)


class Swaps(MinimalStrategy):
    """Gives a path to work in, and then has it lead to the original."""

    def diff(self, ref):
        os.rename(ref['path'], ref['path'] + '.away')
        os.symlink(ref['base'], ref['path'])
        return []


class Tells(MinimalStrategy):
    """Tells what it was told, wherever there is a word to be said."""

    def create(self, plan_id, resource):
        made = super().create(plan_id, resource)
        return SandboxRef(metadata={**made.metadata, 'fallback_reason': f'no clones with {TOKEN}'})

    def commit(self, ref):
        done = super().commit(ref)
        return CommitResult(entries=done.entries, notices=[Notice('hello.txt', f'written with {TOKEN}')])

    def rollback(self, ref):
        super().rollback(ref)
        return RollbackResult(message=f'brought back with {TOKEN}')


class CommitsNothing(MinimalStrategy):
    def commit(self, ref):
        return CommitResult(entries=[])


class KeepsModes(MinimalStrategy):
    """Copies back by means of its own."""

    def commit(self, ref):
        done = super().commit(ref)
        for entry in done.entries:
            if entry.new and entry.new.type == 'file':
                os.chmod(os.path.join(ref['base'], entry.path), entry.new.mode)
        return CommitResult(entries=done.entries)


class CommitsMore(MinimalStrategy):
    """Finds something more to commit than it was asked about."""

    def commit(self, ref):
        trees.write(ref['path'], 'secret/x', b'x')
        return super().commit(ref)


class SaysMore(MinimalStrategy):
    def commit(self, ref):
        return {'digest': 'mine', 'entries': super().commit(ref).entries, 'took': 3}


class SaysNonsense(MinimalStrategy):
    def commit(self, ref):
        super().commit(ref)
        return {'entries': 7}


class DiesInCommit(MinimalStrategy):
    def commit(self, ref):
        super().commit(ref)
        os._exit(9)


class TwoPhases(MinimalStrategy):
    """What it says of a commit is true, but for the digest that is named below."""

    capabilities = Capabilities(file_tree=True, two_phase=True, resource_types=['fs-directory'])

    def commit(self, ref, request):
        if request.phase == 'abort':
            return None
        entries = self.entries(ref)
        if request.phase != 'prepare':
            super().commit(ref)
        return CommitResult(entries=entries)

    def entries(self, ref):
        return self.diff(ref)


class SaysOthers(TwoPhases):
    def entries(self, ref):
        return [{'path': 'other.txt', 'kind': 'created'}]


honest = results.commit


def with_a_digest(value):
    """Past the shim, which knows no such field."""
    answer = honest(value)
    if answer.result is not None and os.path.exists(os.environ['NOTES'] + '.digest'):
        with open(os.environ['NOTES'] + '.digest') as digest:
            answer.result['digest'] = digest.read()
        note('named a digest')
    return answer


results.BY_METHOD['commit'] = with_a_digest


class SlowToCreate(MinimalStrategy):
    """Makes something outside, and is never done with it."""

    def create(self, plan_id, resource):
        with open(os.environ['NOTES'] + '.bucket', 'w'):
            note('creating')
        time.sleep(600)

    def cleanup(self, ref):
        note('cleanup')
        os.unlink(os.environ['NOTES'] + '.bucket')
