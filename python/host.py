"""Runs one plugin: `python3 host.py`, started by `sandbox`. The package beside this file does the work."""

import os
import sys

# Every Python reads this far, and says so rather than stumble over a word that it does not know.
if sys.version_info < (3, 9):
    sys.exit("Python 3.9 or later is needed; this is %s" % sys.version.split()[0])

# Not every Python looks beside the program that it runs.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from sandboxer_plugin.serving import main  # noqa: E402

if __name__ == "__main__":
    # A plugin's own module may be called `host` too: this directory is looked into last.
    sys.path[:] = [place for place in sys.path if place != HERE] + [HERE]
    sys.exit(main())
