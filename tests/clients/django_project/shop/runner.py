"""Runs tests in the database that the settings name, which is a sandbox, instead of one made for them."""

from django.core.management import call_command
from django.test.runner import DiscoverRunner


class SandboxRunner(DiscoverRunner):
    def setup_databases(self, **kwargs):
        call_command("migrate", interactive=False, verbosity=0)
        return []

    def teardown_databases(self, old_config, **kwargs):
        """Nothing to take away: `sandbox rollback` does it."""
