"""Secrets in the folder of a service on one machine: made at the first start, then kept."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from pathlib import Path

from driftline.errors import InvalidSpec
from trainers.own_files import require_folder, require_plain

SECRET = "secret"
ADMIN_TOKEN = "admin-token"
DATABASES = ("driftline.db", "mlflow.db")
FOLDERS = ("logs", "checkpoints", "mlartifacts")


def kept(home: Path, name: str) -> tuple[str, bool]:
    """A secret in the folder, made if missing; readable only by its owner (mode 0600).

    Processes that call this at the same time all get the same secret.

    Args:
        home: The folder; created if missing.
        name: SECRET or ADMIN_TOKEN.

    Returns:
        The secret, and whether it was made just now.

    Raises:
        InvalidSpec: The folder cannot be written to or is another user's, or the file is empty or a link.
    """
    file = home / name
    prepare(home)
    try:
        made = not file.exists() and _make(file)
        require_plain(file)
        text = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise _refusal(home, error) from error
    if not text:
        raise InvalidSpec("DRIFTLINE_HOME", f"{file} must hold a secret, got an empty file: delete it")
    return text, made


def prepare(home: Path) -> None:
    """Makes the folder of a service if it is missing.

    Raises:
        InvalidSpec: The folder cannot be written to or is another user's, or something in it is a link.
    """
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        require_folder(home)
        for name in DATABASES:
            require_plain(home / name)
        for name in FOLDERS:
            if (folder := home / name).is_symlink():
                raise OSError(errno.ELOOP, f"is a link to {os.readlink(folder)!r}: remove the link", str(folder))
    except OSError as error:
        raise _refusal(home, error) from error


def _refusal(home: Path, error: OSError) -> InvalidSpec:
    problem = f"must be a folder to write into, got {error.filename or home} ({error.strerror})"
    return InvalidSpec("DRIFTLINE_HOME", problem)


def _make(file: Path) -> bool:
    """Writes a new secret atomically; False if another process was faster."""
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
