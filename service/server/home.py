"""The folder of a service on one machine: what is made there at the first start and kept for the next."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from driftline.errors import InvalidSpec

SECRET = "secret"
ADMIN_TOKEN = "admin-token"


def kept(home: Path, name: str) -> tuple[str, bool]:
    """A secret text of the folder, made when there is none; for its owner's eyes only (mode 0600).

    Several processes may ask at once: all get the same.

    Args:
        home: The folder; made when it is not there.
        name: SECRET or ADMIN_TOKEN.

    Returns:
        The text, and whether it was made just now.

    Raises:
        InvalidSpec: The folder cannot be written to, or the file is empty.
    """
    file = home / name
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = not file.exists() and _make(file)
        text = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidSpec("DRIFTLINE_HOME", f"must be a folder to write into, got {home} ({error.strerror})") from error
    if not text:
        raise InvalidSpec("DRIFTLINE_HOME", f"{file} must hold a secret, got an empty file: delete it")
    return text, made


def _make(file: Path) -> bool:
    """Writes a fresh secret, whole or not at all; False when another process was faster."""
    descriptor, part = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(secrets.token_urlsafe(32) + "\n")
            out.flush()
            os.fsync(out.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(part, file)
            return True
        return False
    finally:
        os.unlink(part)
