"""Copies a program's files from the service to the folder of checkpoints, which every node that trains can read."""

from __future__ import annotations

from typing import Any

from driftline.archive import ArchiveError, unpack
from driftline.client.driver_client import DriverClient
from driftline.errors import Unavailable
from driftline.study.program import Program
from service.driver import checkpoints

_PREFIX = "files"


def archive_copy(client: DriverClient, study_id: str, program: Program, folder: str, attempt: int) -> dict[str, Any]:
    """Copies a program's files beside the checkpoints; returns the fields of `PackJob` that describe them.

    The copy is named as a checkpoint of round 0, so that it is replaced and removed like one.

    Raises:
        Unavailable: The files cannot be written, or came damaged.
    """
    if program.archive is None:
        return {}
    data = client.archive(study_id)
    try:
        unpack(data, program.archive)
        url = checkpoints.write(checkpoints.join(folder, _PREFIX), (attempt, 0), 0, data)
    except (ArchiveError, OSError) as error:
        raise Unavailable(f"the program's files could not be copied to {folder}: {error}") from error
    return {"files": url, "archive": program.archive}
