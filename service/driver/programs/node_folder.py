"""The folder of a trial of a service's program, on the node where it is trained; it is removed with the trial."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from driftline.archive import ArchiveError, unpack
from service.driver import checkpoints
from service.driver.job import PackJob

_FILES, _RUN = "program", "run"


class NodeFolder:
    """A new folder of this node.

    Args:
        job: A job without places of its own; the files of its archive are unpacked.

    Attributes:
        job: The job with places in the folder.

    Raises:
        OSError: The archive cannot be read, or is damaged.
    """

    def __init__(self, job: PackJob) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="driftline-trial-", ignore_cleanup_errors=True)
        files = Path(self._folder.name, _FILES)
        files.mkdir()
        try:
            if job.archive:
                unpack(checkpoints.read(job.files), job.archive, files)
        except ArchiveError as error:
            self.close()
            raise OSError(f"the program's files at {job.files} {error}") from error
        except BaseException:
            self.close()
            raise
        self.job = replace(job, place=str(files.with_name(_RUN)), files=str(files))

    def close(self) -> None:
        """Removes the folder."""
        self._folder.cleanup()
