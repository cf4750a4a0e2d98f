"""Settings of a project that is tested in a sandbox: the connection comes from the environment that `sandbox exec` sets."""

import os

SECRET_KEY = "only for tests"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "books"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TEST_RUNNER = "shop.runner.SandboxRunner"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ["PGPASSWORD"],
        "NAME": os.environ["PGDATABASE"],
        "CONN_MAX_AGE": 60,
    }
}
