"""Secrets in the folder of a service on one machine: made at the first start, then kept."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from pathlib import Path

from driftline.errors import InvalidSpec
from trainers.own_files import DRAFT, require_folder, require_plain, update

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
        created = not file.exists() and _make(file)
        require_plain(file)
        text = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise _refusal(home, error) from error
    if not text:
        raise InvalidSpec("DRIFTLINE_HOME", f"{file} must hold a secret, got an empty file: delete it")
    return text, created


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
    """Writes a new secret whole or not at all; False if another process was faster."""
    draft = file.with_name(f".{file.name}{DRAFT}")
    with update(draft, 0o600) as out:  # mode 0600: nobody else may open it early and read the secret later
        fcntl.flock(out, fcntl.LOCK_EX)
        if file.exists():  # another process has finished: the locked draft is now `file`, or came too late
            draft.unlink(missing_ok=True)
            return False
        out.truncate(0)  # a process may have died here
        out.write(secrets.token_urlsafe(32) + "\n")
        out.flush()
        os.fsync(out.fileno())
        os.replace(draft, file)
        return True
