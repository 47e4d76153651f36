"""Whatever Driftline writes under a name: a link that somebody has put there leads to no other file."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from driftline import Frontier
from driftline.errors import DriftlineError
from driftline.results.document import Reading, frontier_document
from driftline.results.recorded_table import RecordedTable, write
from service.cli.init import write_example
from service.driver import checkpoints
from service.launchers.local.launcher import LocalLauncher
from service.log_file import LogFile
from service.server.home import ADMIN_TOKEN, DATABASES, FOLDERS, kept, prepare
from service.store.store import Store
from tests.results.samples import study
from tests.results.test_recorded_table import study as small_study
from trainers.own_files import require_plain
from trainers.theory.figures.curves import Curve, FigureData, Panel
from trainers.theory.figures.files import write as write_figure

KEYS = "two keys\n"
FIGURE = FigureData("figure", "", [Panel("", [Curve("", np.ones(1), np.ones(1))])])


def problem(write_to: Callable[[Path], object], file: Path) -> str:
    try:
        write_to(file)
    except (DriftlineError, OSError) as error:
        return str(error)
    return ""


def result() -> Frontier:
    return Frontier(frontier_document("digits", study(trials=4, confirm=2), Reading("test_loss", "rounds"), 200))


def start_driver(file: Path) -> None:
    launch: Any = SimpleNamespace(study_id=file.stem, attempt=1, token="", secrets=())
    LocalLauncher("http://127.0.0.1:1", "", file.parent).start(launch)


def log(file: Path) -> None:
    LogFile(file).emit(logging.makeLogRecord({"msg": "a line"}))  # drops what it cannot write
    require_plain(file)


WRITERS: dict[str, Callable[[Path], object]] = {
    "result.json": lambda file: result().save(file),
    "result.svg": lambda file: result().plot(file),
    "result.html": lambda file: result().plot(file),
    "figure.csv": lambda file: write_figure(FIGURE, file.parent),
    "figure.svg": lambda file: write_figure(FIGURE, file.parent),
    "table.parquet": lambda file: write(RecordedTable(small_study(), (), ""), file),
    "pack.1.1.00000007.ckpt": lambda file: checkpoints.write(str(file.parent / "pack"), (1, 1), 7, b"data"),
    "study.yaml": lambda file: write_example("first", file),
    "driver.log": log,
    "study1.lock": start_driver,
    "study1.log": start_driver,
    "driftline.db": lambda file: Store(file),
    ADMIN_TOKEN: lambda file: kept(file.parent, ADMIN_TOKEN),
}


@pytest.mark.parametrize("target", ["authorized_keys", "nothing"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_link_leads_to_no_other_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, target: str
) -> None:
    (tmp_path / "authorized_keys").write_text(KEYS)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / target)
    assert problem(WRITERS[name], tmp_path / "out" / name) or not (tmp_path / "out" / name).is_symlink()
    assert (tmp_path / "authorized_keys").read_text() == KEYS
    assert not (tmp_path / "nothing").exists()


def test_checkpoints_of_a_study_are_neither_written_nor_removed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    kept_file = tmp_path / "elsewhere" / "pack.1.1.00000007.ckpt"
    kept_file.write_text(KEYS)
    (tmp_path / "study").symlink_to(tmp_path / "elsewhere")
    for use in (lambda at: checkpoints.clear(at, 9), lambda at: checkpoints.write(f"{at}/pack", (1, 1), 8, b"data")):
        with pytest.raises(OSError, match="is a link to"):
            use(str(tmp_path / "study"))
    assert list((tmp_path / "elsewhere").iterdir()) == [kept_file]


@pytest.mark.parametrize("name", [*FOLDERS, *DATABASES])
def test_nothing_in_the_folder_of_a_service_is_a_link(tmp_path: Path, name: str) -> None:
    prepare(tmp_path / "home")
    (tmp_path / "home" / name).symlink_to(tmp_path)
    with pytest.raises(DriftlineError, match=r"DRIFTLINE_HOME: .*is a link to .*: remove the link"):
        prepare(tmp_path / "home")
