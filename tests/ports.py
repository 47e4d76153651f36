"""Ports of this machine for what must be told one before it listens."""

import random
import socket

_GIVEN: set[int] = set()


def free_port() -> int:
    """A free port of 127.0.0.1 that was not given before.

    It lies below those that the system gives to outgoing connections, so that none of these has it by the time somebody
    listens, and is drawn at random, so that test processes side by side do not take the same.
    """
    draw = random.SystemRandom()  # seeds of a test are no business of ports
    while True:
        port = draw.randrange(20_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _GIVEN:
            _GIVEN.add(port)
            return port
