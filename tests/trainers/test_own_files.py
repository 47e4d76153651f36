"""Files are written by name: a link that somebody has put in the place of one redirects nothing."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainers import own_files

OTHER = 4242


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "authorized_keys"
    file.write_text("two keys\n")
    return file


def opened(path: Path) -> None:
    own_files.update(path).close()


def appended(path: Path) -> None:
    os.close(own_files.append(path))


def read(path: Path) -> None:
    own_files.read(path).close()


def link(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def hard_link(path: Path, precious: Path) -> None:
    os.link(precious, path)


def pipe(path: Path, precious: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, precious: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "use"),
    [
        (make, use)
        for make in (link, hard_link, pipe, folder)
        for use in (opened, appended, own_files.require_plain, read)
        if (make, use) != (hard_link, read)  # reading through another name changes nothing
    ],
)
def test_what_is_changed_in_place_is_a_plain_file(
    tmp_path: Path, precious: Path, make: Callable[[Path, Path], None], use: Callable[[Path], None]
) -> None:
    make(tmp_path / "file", precious)
    with pytest.raises(OSError, match=r"link|must be a file") as refused:
        use(tmp_path / "file")
    assert refused.value.filename == str(tmp_path / "file")
    assert precious.read_text() == "two keys\n"


def test_a_plain_file_may_be_changed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for text in ("one", "two"):
        with os.fdopen(own_files.append(file), "a") as out:
            out.write(text)
    with own_files.update(file) as out:
        assert out.read() == "onetwo"


@pytest.mark.parametrize("make", [link, hard_link])
def test_a_link_is_replaced_by_the_file(tmp_path: Path, precious: Path, make: Callable[[Path, Path], None]) -> None:
    make(tmp_path / "file", precious)
    own_files.put(tmp_path / "file", b"new")
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
    assert precious.read_text() == "two keys\n"


def test_a_link_to_nothing_makes_no_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        own_files.put_new(tmp_path / "file", b"new")
    own_files.put(tmp_path / "file", b"new")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("make", [pipe, folder])
def test_neither_pipes_nor_folders_are_replaced(
    tmp_path: Path, precious: Path, make: Callable[[Path, Path], None]
) -> None:
    make(tmp_path / "file", precious)
    with pytest.raises(OSError, match="must be a file"):
        own_files.put(tmp_path / "file", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["authorized_keys", "file"]


def test_a_replaced_file_keeps_its_permissions_and_long_names_work(tmp_path: Path) -> None:
    file = tmp_path / ("ä" * 127)
    file.touch(0o600)
    own_files.put(file, b"new")
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_the_folder_of_another_user_is_refused_also_to_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_files.require_folder(tmp_path)
    if os.geteuid() == 0:
        os.chown(tmp_path, OTHER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: OTHER)
        monkeypatch.setattr(own_files, "_maker", lambda folder: OTHER)
    with pytest.raises(PermissionError, match=r"belongs to user .*: work as that user"):
        own_files.require_folder(tmp_path)


def test_a_server_of_files_may_map_all_users_to_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    own_files.require_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    own_files.put(file, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        own_files.put(file, b"new")
    assert error.value.filename == str(file)
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
