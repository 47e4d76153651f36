"""Runs a worker of a private Ray, as Ray's own `setup_worker.py` does, but a third of a second earlier.

Ray's script imports Ray to read the runtime environment, which the workers of a private Ray do not have.
"""

from __future__ import annotations

import os
import runpy
import sys

if __name__ == "__main__":
    sys.argv = [
        part for part in sys.argv[1:] if not part.startswith(("--language=", "--serialized-runtime-env-context="))
    ]
    sys.path[0] = os.path.dirname(sys.argv[0])
    from service.garbage import collect_after_loading

    collect_after_loading()  # `worker.Worker.setup` ends this
    runpy.run_path(sys.argv[0], run_name="__main__")
