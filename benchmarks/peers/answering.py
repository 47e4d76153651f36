"""How a peer answers `benchmarks/peer_processes.py`: one JSON line with another."""

import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any


def answer(make: Callable[..., Any]) -> None:
    """Answers until the input ends: ["begin", ...] makes the peer, any other [verb, ...] calls its method.

    What libraries print goes to the standard error.
    """
    logging.disable(logging.WARNING)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer: Any = None
    for line in sys.stdin:
        verb, *given = json.loads(line)
        if verb == "begin":
            peer = make(*given)
        print(
            json.dumps(None if verb == "begin" else getattr(peer, verb)(*given), default=float),
            file=answers,
            flush=True,
        )
