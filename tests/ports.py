"""Ports of this machine for what must be told one before it listens."""

import random
import socket

_HELD: list[socket.socket] = []


def free_port() -> int:
    """A port of 127.0.0.1 that this process holds while it lives: only whoever is told it listens there.

    It is bound but does not listen, and has SO_REUSEADDR: a server that sets this option, as all here do, may listen
    there, again and again, while no other call gets it, in whichever process. It lies below the ports that the system
    gives to outgoing connections, so that none of these has it either.
    """
    draw = random.SystemRandom()  # seeds of a test are no business of ports
    while True:
        port, holder = draw.randrange(20_000, 30_000), socket.socket()
        try:
            holder.bind(("127.0.0.1", port))  # fails where anybody has it, and so comes before the option
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _HELD.append(holder)
        return port
