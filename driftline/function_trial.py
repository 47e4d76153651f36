"""Runs a function as a trial: `python -m driftline.function_trial`, see `driftline.study.program_function`."""

from __future__ import annotations

import base64
import json
import os
import sys
import zlib

from driftline import trial


def main() -> None:
    """Calls the function with the trial."""
    with open(os.environ[trial.VARIABLE], encoding="utf-8", errors="surrogateescape") as file:
        document = json.load(file)
    import cloudpickle

    folders, function = cloudpickle.loads(zlib.decompress(base64.b64decode(document["function"])))
    sys.path[:0] = folders  # the function may import modules that lie beside its script
    train = cloudpickle.loads(function)
    train(trial.current())


if __name__ == "__main__":
    main()
