"""Runs one plugin: `python3 host.py`, started by `sandbox`. The package beside this file does the work."""

import sys

from sandboxer_plugin.serving import main

if __name__ == "__main__":
    # A plugin's own module may be called `host` too: this directory is looked into last.
    sys.path.append(sys.path.pop(0))
    sys.exit(main())
