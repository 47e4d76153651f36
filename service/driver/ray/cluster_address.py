"""Waits until a joined cluster accepts connections: `ray.init` would try for 13 minutes, and cannot be told to stop."""

from __future__ import annotations

import importlib
import os
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from driftline.errors import InvalidSpec, Unavailable
from service.driver.ray import mutex
from service.known_versions import known

_CORRECT = "correct --ray-address or DRIFTLINE_RAY_ADDRESS"
_CONNECT_S = 2.0
_LOOK_S = 0.5


def wait(address: str, progress: Callable[[str], None], patient: Callable[[], bool] = lambda: True) -> None:
    """Waits until something accepts TCP connections where a cluster should be.

    Args:
        address: As for `ray.init`: "host:port", "ray://host:port" or "auto".
        progress: Called with a message that says where no connection is accepted, and why.
        patient: Whether to keep waiting.

    Raises:
        InvalidSpec: `address` has none of these forms.
        NotJoined: `patient` gave False.
        Unavailable: No connection was accepted for `mutex.TURN_S` seconds, or "auto" finds no cluster.
    """
    deadline = time.monotonic() + mutex.TURN_S
    told = False
    target = _target(address)
    if target is None:
        return
    host, port = target
    while True:
        try:
            socket.create_connection((host, port), _CONNECT_S).close()
            return
        except OSError as error:
            at = f"Ray at {address} must accept connections, got {error} from {host} port {port}"
        if not patient():
            raise mutex.NotJoined(at)
        if time.monotonic() >= deadline:
            raise Unavailable(f"{at} for {mutex.TURN_S:.0f} s: start the cluster, or {_CORRECT}")
        if not told:
            progress(f"{at}: trying again for up to {mutex.TURN_S:.0f} s ...")
            told = True
        time.sleep(_LOOK_S)


def _target(address: str) -> tuple[str, int] | None:
    """Host and port to which Ray will connect; None if only Ray knows them, and its version is unknown."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    try:
        if address == "auto" and not known("ray"):
            return None
        if "://" in address or not known("ray"):
            parts = urlsplit(address if "://" in address else f"//{address}")
        else:
            services = importlib.import_module("ray._private.services")
            parts = urlsplit(f"//{services.canonicalize_bootstrap_address(address)}")
        if not parts.hostname or not parts.port:
            raise ValueError("it has no host or no port")
        parts.hostname.encode("idna")  # fails as `socket` would
        return parts.hostname, parts.port
    except ConnectionError as error:
        raise Unavailable(f"Ray at {address} must run on this machine, got {error}") from None
    except ValueError as error:
        rule = "the address of a Ray cluster must be host:port, ray://host:port, auto or local"
        raise InvalidSpec("", f"{rule}, got {address!r} ({error}): {_CORRECT}") from None
