"""Remembers submissions to which no answer came, so that the same command submits no study twice.

Each is a file in the user's cache folder, named by a hash of service and study, that holds the idempotency key.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers import own_files

KEPT_S = 7 * 24 * 3600.0
"""Seconds for which a submission is remembered, as long as a service remembers keys."""


def folder() -> Path:
    """The folder of the remembered submissions, which may not exist."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "driftline" / "unanswered"


def key(url: str, study: Mapping[str, Any]) -> str | None:
    """The key of an earlier submission of this study to which no answer came; None if there is none."""
    file = _file(url, study)
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        if time.time() - file.lstat().st_mtime < KEPT_S:
            with own_files.read(file) as text:
                return text.read(200).strip() or None
    return None


def keep(url: str, study: Mapping[str, Any], key: str) -> None:
    """Remembers a key; without effect where the user's cache cannot be written to, since the error names the key."""
    with contextlib.suppress(OSError, RuntimeError):
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        own_files.require_folder(folder())
        own_files.put(_file(url, study), key.encode())


def forget(url: str, study: Mapping[str, Any]) -> None:
    """Forgets a key, once there was an answer."""
    with contextlib.suppress(OSError, RuntimeError):
        _file(url, study).unlink()


def _file(url: str, study: Mapping[str, Any]) -> Path:
    text = json.dumps([url, study], sort_keys=True)
    return folder() / hashlib.sha256(text.encode()).hexdigest()
