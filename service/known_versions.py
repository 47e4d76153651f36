"""Versions of libraries for which shortcuts through private APIs are tested; others are used by the public API."""

from __future__ import annotations

import functools
import logging
from importlib.metadata import version

_LOG = logging.getLogger(__name__)
KNOWN = {"optuna": "5.0", "ray": "2.60"}
"""Library -> the minor version for which tests compare the shortcuts with the public API."""


@functools.cache
def known(library: str) -> bool:
    """Whether the installed version is the known one; if not, a line in the log says so once."""
    have = version(library)
    if have.split(".")[:2] == KNOWN[library].split("."):
        return True
    _LOG.warning("%s %s is not %s: it is used without shortcuts, slower", library, have, KNOWN[library])
    return False
