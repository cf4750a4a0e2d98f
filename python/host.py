"""Runs one plugin: `python3 host.py`, started by `sandbox`. The package beside this file does the work."""

import sys

# Every Python reads this far, and says so rather than stumble over a word that it does not know.
if sys.version_info < (3, 9):
    sys.exit("Python 3.9 or later is needed; this is %s" % sys.version.split()[0])

from sandboxer_plugin.serving import main

if __name__ == "__main__":
    # A plugin's own module may be called `host` too: this directory is looked into last.
    sys.path.append(sys.path.pop(0))
    sys.exit(main())
