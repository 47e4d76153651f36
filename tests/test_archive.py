"""Files of programs as they travel: packed the same way everywhere, and unpacked without trust."""

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from driftline import archive
from driftline.archive import ArchiveError, packed, unpack


def test_files_arrive_as_they_were(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    (source / "package" / "deep").mkdir(parents=True)
    target.mkdir()
    long, odd = "x" * 200 + ".py", "ünï code.txt"
    contents = {"train.py": b"print()", "package/deep/run.sh": b"", long: b"1" * 30_000, odd: bytes(range(256))}
    for name, content in contents.items():
        (source / name).write_bytes(content)
    (source / "package/deep/run.sh").chmod(0o700)
    data, digest = packed({name: source / name for name in contents})
    os.utime(source / "train.py", (0, 0))
    assert packed({name: source / name for name in reversed(contents)}) == (data, digest)
    unpack(data, digest)
    unpack(data, digest, target)
    files = [path for path in target.rglob("*") if path.is_file()]
    assert {str(path.relative_to(target)): path.read_bytes() for path in files} == contents
    assert {path.name for path in files if path.stat().st_mode & 0o111} == {"run.sh"}
    assert all(path.stat().st_mode & 0o7022 == 0 for path in files)
    again, other = packed({"train.py": source / "package/deep/run.sh"})
    assert other != digest
    with pytest.raises(ArchiveError, match=f"must have the digest {digest}, got {other}"):
        unpack(again, digest)


Fill = Callable[[tarfile.TarFile], None]


def made(fill: Fill, form: int = tarfile.PAX_FORMAT) -> tuple[bytes, str]:
    """An archive that no client makes, with its right digest."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        fill(tar)
    return gzip.compress(buffer.getvalue()), hashlib.sha256(buffer.getvalue()).hexdigest()


def of(*names: str, **fields: object) -> Fill:
    """Members with these names and fields."""

    def fill(tar: tarfile.TarFile) -> None:
        for name in names:
            member = tarfile.TarInfo(name)
            for field, value in fields.items():
                setattr(member, field, value)
            tar.addfile(member, io.BytesIO(b"x" * member.size))

    return fill


def sparse(tar: tarfile.TarFile) -> None:
    """A few bytes that say that they are a terabyte."""
    member = tarfile.TarInfo("big")
    member.size = 0
    headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(2**40)}
    member.pax_headers = headers | {"GNU.sparse.numblocks": "1", "GNU.sparse.map": f"{2**40 - 1},0"}
    tar.addfile(member)


WRONG: dict[str, tuple[Fill, str]] = {
    "absolute": (of("/etc/cron.d/x"), "must hold names below its folder"),
    "above": (of("a/../../x"), "must hold names below its folder"),
    "dot": (of("./x"), "must hold names below its folder"),
    "empty": (of(""), "must hold names below its folder"),
    "twice": (of("x", "x"), "must hold each name once, got 'x' twice"),
    "below a file": (of("x", "x/y"), "must hold each name once, got 'x/y' twice"),
    "above a file": (of("x/y", "x"), "must hold each name once, got 'x' twice"),
    "long": (of("x" * 300), "must hold names that a file can have"),
    "folder": (of("x", type=tarfile.DIRTYPE), "must hold plain files only, got 'x'"),
    "link": (of("x", type=tarfile.SYMTYPE, linkname="/etc"), "must hold plain files only, got 'x'"),
    "hard link": (of("x", type=tarfile.LNKTYPE, linkname="/etc/passwd"), "must hold plain files only"),
    "device": (of("x", type=tarfile.CHRTYPE), "must hold plain files only"),
    "pipe": (of("x", type=tarfile.FIFOTYPE), "must hold plain files only"),
    "sparse": (sparse, "must hold plain files only, got 'big'"),
    "large": (of("x", size=2**17), "must have at most 0.0625 MiB unpacked"),
    "many": (of(*map(str, range(12))), "must hold at most 10 files"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_archive_that_no_client_makes_is_refused(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, words = WRONG[wrong]
    monkeypatch.setattr(archive, "MOST_UNPACKED", 2**16)
    monkeypatch.setattr(archive, "MOST_FILES", 10)
    (tmp_path / "target").mkdir()
    data, digest = made(fill)
    for folder in (None, tmp_path / "target"):
        with pytest.raises(ArchiveError, match=words):
            unpack(data, digest, folder)
    assert {path.name for path in tmp_path.iterdir()} == {"target"}


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(os.urandom(5000))
    data, digest = packed({"x": tmp_path / "x"})
    bad = [b"", b"no gzip", data[:-9], data[:1000], gzip.compress(b"no tar" * 999), data[:50] + b"\0" + data[51:]]
    bad.append(gzip.compress(gzip.decompress(data) + b"more"))
    for broken in bad:
        with pytest.raises(ArchiveError, match=r"must be a tar|must have the digest|invalid header|must hold"):
            unpack(broken, digest)


def test_what_is_too_much_to_pack_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ArchiveError, match="must have at most 128 MiB unpacked: leave data out"):
        packed({"x": tmp_path / "x"})
    (tmp_path / "y").write_bytes(os.urandom(5000))
    monkeypatch.setattr(archive, "MOST_PACKED", 4000)
    with pytest.raises(ArchiveError, match=r"must have at most 0.00381 MiB packed, got"):
        packed({"y": tmp_path / "y"})
    monkeypatch.setattr(archive, "MOST_FILES", 1)
    with pytest.raises(ArchiveError, match="must be at most 1 files, got 2"):
        packed({"x": tmp_path / "x", "y": tmp_path / "y"})
