"""The temporary folder of a trial on its node, for programs of a service; removed with the trial."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

from driftline.archive import ArchiveError, unpack
from service.driver import checkpoints
from service.driver.job import PackJob
from service.file_locks import own_folder

_PREFIX, _FILES, _RUN = "driftline-trial-", "program", "run"
_LONGEST = 4096  # characters of its path
_PRINTED_LINES, _PRINTED_BYTES = 40, 1 << 14


class NodeFolder:
    """A new folder on this node; folders of dead workers are removed first.

    Args:
        job: A job without `place`; the files of its archive are unpacked.

    Attributes:
        job: The job with `place` and `files` in the folder.

    Raises:
        OSError: The archive cannot be read, or is damaged.
    """

    def __init__(self, job: PackJob) -> None:
        self._folder, self._lock = own_folder(_PREFIX, _LONGEST)
        files = self._folder / _FILES
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

    def print_log(self) -> None:
        """Prints the end of the program's log, so that it appears in the driver's log."""
        with contextlib.suppress(OSError), Path(f"{self.job.place}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _PRINTED_BYTES))
            for line in log.read().decode(errors="replace").splitlines()[-_PRINTED_LINES:]:
                print(f"program: {line}", flush=True)

    def close(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()
