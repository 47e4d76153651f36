"""The files of a study's program, as they are copied into an output folder."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from driftline.errors import InvalidSpec
from driftline.study.program import Program
from driftline.study.program_sources import program_archive
from service.embedded.program_files import keep_files, remove_work


def program(folder: Path, *files: str) -> Program:
    return Program(command=["true"], metrics={"loss": "falls"}, files=list(files), folder=str(folder))


def test_files_are_copied_once_with_their_permissions(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "run.sh").write_text("true")
    (tmp_path / "package" / "run.sh").chmod(0o755)
    (tmp_path / "package" / "link.sh").symlink_to("run.sh")
    keep_files(program(tmp_path, "package"), tmp_path)
    copy = tmp_path / "program" / "package"
    assert os.access(copy / "run.sh", os.X_OK)
    assert (copy / "link.sh").read_text() == "true"
    assert not (copy / "link.sh").is_symlink()
    keep_files(program(tmp_path, "package"), tmp_path)
    (tmp_path / "package" / "run.sh").write_text("false")
    with pytest.raises(InvalidSpec, match=r"package/\w+.sh must be as it was when the study in .* began"):
        keep_files(program(tmp_path, "package"), tmp_path)


def test_an_empty_folder_leaves_an_empty_copy(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        keep_files(program(tmp_path, "empty"), tmp_path)
        assert list((tmp_path / "program").iterdir()) == []


def test_files_must_be_those_that_the_study_names(tmp_path: Path) -> None:
    """As of a study that ran on a service, and whose document is run at home."""
    (tmp_path / "run.sh").write_text("true")
    own = program(tmp_path, "run.sh")
    digest = program_archive(own)[1]
    keep_files(own.model_copy(update={"archive": digest}), tmp_path / "one")
    (tmp_path / "run.sh").write_text("false")
    with pytest.raises(InvalidSpec, match=f"^program.files: must be those whose digest the study names, {digest}"):
        keep_files(own.model_copy(update={"archive": digest}), tmp_path / "two")
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda strange: strange.symlink_to("/"), "must hold no links to folders, got .*strange"),
        (lambda strange: strange.symlink_to("missing"), "must be files and folders, got .*strange.*, which leads"),
        (os.mkfifo, "must be files and folders, got .*strange.*, which leads nowhere, or is a pipe"),
    ],
    ids=["link to a folder", "link to nothing", "pipe"],
)
def test_what_cannot_be_copied_is_refused(make: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    make(tmp_path / "package" / "strange")
    with pytest.raises(InvalidSpec, match=f"program.files: {said}"):
        keep_files(program(tmp_path, "package"), tmp_path)
    assert not (tmp_path / "program").exists()


def test_work_that_was_left_is_removed_and_nothing_that_a_link_names(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").touch()
    (tmp_path / "out" / "trials" / "one.work").mkdir(parents=True)
    (tmp_path / "out" / "trials" / "two.work").symlink_to(tmp_path / "own")
    remove_work(tmp_path / "out")
    assert not list((tmp_path / "out" / "trials").iterdir())
    assert (tmp_path / "own" / "file").exists()
