"""`driftline data fetch`: whole files with their checksums, resumed, from a server on this machine."""

import gzip
import hashlib
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from driftline.errors import Conflict, InvalidSpec, NotFound, Unavailable
from service.cli import data_fetch, public_data
from service.cli.data_fetch import fetch
from service.cli.public_data import PublicData, PublicFile
from tests.command_line import printed
from tests.web_server import QuietHandler, port_of
from trainers.tasks import data as data_task

CONTENT = np.random.default_rng(0).bytes(300_000)


def archive() -> bytes:
    """CIFAR-10's, with three images."""
    batch = {b"data": np.zeros((3, 3072), np.uint8), b"labels": [0, 1, 0]}
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name in ("cifar-10-batches-py/data_batch_1", "cifar-10-batches-py/test_batch", "../../outside"):
            content = pickle.dumps(batch, protocol=2)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("cifar-10-batches-py/data_batch_2")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    return file.getvalue()


def emnist() -> bytes:
    """EMNIST's, with three images of two of its splits, and what else is in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("gzip/emnist-byclass-mapping.txt", "0 48\n")
        for split in ("byclass", "letters"):
            for side in ("train", "test"):
                images = struct.pack(">IIII", 0x803, 3, 4, 4) + bytes(48)
                for kind, content in (
                    ("images-idx3", images),
                    ("labels-idx1", struct.pack(">II", 0x801, 3) + b"\0\1\1"),
                ):
                    packed.writestr(f"gzip/emnist-{split}-{side}-{kind}-ubyte.gz", gzip.compress(content))
    return file.getvalue()


ARCHIVE = archive()
FILES = {"a.bin": CONTENT, "b.bin": CONTENT[::-1], "c.tar.gz": ARCHIVE, "gzip.zip": emnist()}


class Handler(QuietHandler):
    """Serves `FILES`, with ranges; `breaks` is how many answers end after 100,000 bytes."""

    breaks = 0
    ranges = True
    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        content = FILES.get(self.path.removeprefix("/data/"))
        if content is None:
            self.send_error(404)
            return
        start, said = 0, self.headers.get("range")
        type(self).asked.append(said)
        if said and self.ranges:
            start = int(said.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("content-range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("content-length", str(len(content) - start))
        self.end_headers()
        if self.breaks:
            type(self).breaks -= 1
            self.wfile.write(content[start : start + 100_000])
            self.close_connection = True
            return
        self.wfile.write(content[start:])


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {"breaks": 0, "ranges": True, "asked": []}.items():
        monkeypatch.setattr(Handler, name, value)
    monkeypatch.setattr(data_fetch, "_WAIT_S", 0.0)
    with port_of(Handler) as port:
        yield f"http://127.0.0.1:{port}/data"


def public(*names: str, **task: Any) -> PublicData:
    files = tuple(PublicFile(name, f"sha256:{hashlib.sha256(FILES[name]).hexdigest()}") for name in names)
    return PublicData("about", "terms", "http://127.0.0.1:9/nothing/", files, task)


def test_files_are_whole_and_kept(tmp_path: Path, mirror: str) -> None:
    said: list[str] = []
    for _ in range(2):
        fetch(public("a.bin", "b.bin"), tmp_path / "own", f"{mirror}/", said.append)
    assert {file.name: file.read_bytes() for file in (tmp_path / "own").iterdir()} == {
        "a.bin": CONTENT,
        "b.bin": CONTENT[::-1],
    }
    assert Handler.asked == [None, None], "not asked for again"
    assert said[-1] == "b.bin is there, with its checksum"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on(ranges: bool, tmp_path: Path, mirror: str) -> None:
    Handler.breaks, Handler.ranges = 2, ranges
    fetch(public("a.bin"), tmp_path, mirror, lambda _: None)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert Handler.asked == [None, "bytes=100000-", "bytes=200000-" if ranges else "bytes=100000-"]


@pytest.mark.parametrize("have", [0, 1, 150_000, len(CONTENT)])
def test_the_next_command_goes_on(have: int, tmp_path: Path, mirror: str) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:have])
    fetch(public("a.bin"), tmp_path, mirror, lambda _: None)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert Handler.asked == [f"bytes={have}-" if have else None]
    assert not (tmp_path / "a.bin.part").exists()


def test_another_file_is_refused_and_removed(tmp_path: Path, mirror: str) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"x" * 1000)
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(Conflict, match=r"must have the checksum sha256:.* got another file, which was removed"):
        fetch(public("a.bin"), tmp_path, mirror, lambda _: None)
    assert [file.name for file in tmp_path.iterdir()] == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == b"mine"
    fetch(public("a.bin"), tmp_path, mirror, lambda _: None)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_without_a_network_it_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_fetch, "_WAIT_S", 0.0)
    data = public("a.bin")
    with pytest.raises(Unavailable) as caught:
        fetch(data, tmp_path, None, lambda _: None)
    message = str(caught.value)
    assert "\n" not in message
    for part in ("http://127.0.0.1:9/nothing/a.bin", str(tmp_path / "a.bin"), data.files[0].checksum, "--mirror"):
        assert part in message
    (tmp_path / "a.bin").write_bytes(CONTENT)  # as it says
    fetch(data, tmp_path, None, lambda _: None)


@pytest.mark.parametrize("mirror_", ["ftp://a/b", "file:///etc"])
def test_other_addresses_are_refused(mirror_: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="must be an address that begins with http"):
        fetch(public("a.bin"), tmp_path, mirror_, lambda _: None)


def test_a_missing_file_names_the_answer(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(Unavailable, match="the server answers 404 Not Found"):
        fetch(public("a.bin"), tmp_path, f"{mirror}/other", lambda _: None)


def test_a_link_and_another_process_are_respected(tmp_path: Path, mirror: str) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "a.bin.part").symlink_to(tmp_path / "mine")
    with pytest.raises(InvalidSpec, match="cannot write"):
        fetch(public("a.bin"), tmp_path, mirror, lambda _: None)
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_an_archive_is_unpacked_beside_itself_and_trains(tmp_path: Path, mirror: str) -> None:
    data, said = public("c.tar.gz"), list[str]()
    folder = tmp_path / "deep" / "cifar"
    fetch(data, folder, mirror, said.append)
    unpacked = {"data_batch_1", "outside", "test_batch"}
    assert {file.name for file in folder.iterdir()} == {".unpacked.json", "c.tar.gz", *unpacked}
    assert not (tmp_path / "outside").exists()
    fetch(data, folder, mirror, said.append)
    assert said[-1] == "c.tar.gz is unpacked"
    (folder / "test_batch").write_bytes(b"cut")
    fetch(data, folder, mirror, said.append)
    task = {"name": "data", "path": str(folder), "partition": "iid", "clients": 2}
    assert data_task.parse(task, "task").document["format"] == "cifar_pickles"


def test_one_split_of_emnist_is_unpacked_and_read(tmp_path: Path, mirror: str) -> None:
    published = public_data.PUBLIC["emnist_byclass"]
    [file] = published.files
    digest = hashlib.md5(FILES["gzip.zip"], usedforsecurity=False).hexdigest()
    data = replace(published, files=(replace(file, checksum=f"md5:{digest}"),))
    fetch(data, tmp_path, mirror, lambda _: None)
    assert len(list(tmp_path.glob("emnist-*"))) == 5
    task = data_task.parse({"name": "data", "path": str(tmp_path), "partition": "iid", "clients": 2}, "task")
    assert (task.document["format"], task.shape, sum(map(len, task.test))) == ("idx", (1, 4, 4), 3)


def test_the_command_prints_a_task_that_is_valid(tmp_path: Path, mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "sets"))
    monkeypatch.setattr(public_data, "PUBLIC", {"tiny": public("c.tar.gz", partition="iid", clients=2, scale="unit")})
    said = printed("data", "fetch", "tiny", "--mirror", mirror)
    task = json.loads(said.splitlines()[-1].removeprefix("task: "))
    assert task == {"name": "data", "path": "tiny", "partition": "iid", "clients": 2, "scale": "unit"}
    assert data_task.parse(task, "task").clients == 2
    assert "tiny  about" in printed("data", "fetch")
    with pytest.raises(NotFound, match="no public data set 'tini': known are tiny"):
        printed("data", "fetch", "tini")


@pytest.mark.parametrize("name", public_data.PUBLIC)
def test_every_public_set_is_complete(name: str) -> None:
    data = public_data.PUBLIC[name]
    assert data.address.endswith("/")
    assert data.files
    for file in data.files:
        algorithm, _, digest = file.checksum.partition(":")
        assert len(digest) == {"md5": 32, "sha256": 64}[algorithm]
        assert int(digest, 16)
        assert os.path.basename(file.name) == file.name
    keys = {"name": "data", "path": "nowhere", **data.task}
    with pytest.raises(ValueError, match="no file or folder"):
        data_task.parse(keys, "task")
