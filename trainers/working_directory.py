"""Takes the working directory off the module search path, where `python -m trainers.run` puts it in front.

A user's file `json.py` or `random.py` would otherwise hide Python's module. Nothing changes if a user's program imports
this module, or if Driftline itself lies in the working directory. Python imports some modules, such as `types`, before
this one: only `python -P -m trainers.run` protects these, too.
"""

import os
import sys


def _leave() -> None:
    started = getattr(sys, "argv", [])[:1] == ["-m"] and not sys.flags.safe_path  # Python is looking for the module
    home = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    if started and os.path.realpath(sys.path[0]) != home:
        del sys.path[0]


_leave()
