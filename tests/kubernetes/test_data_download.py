"""What the data Job runs: only an archive with the right sum, with files and folders below its top, is unpacked."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile

import pytest

from .conftest import CHART

SCRIPT = CHART / "files" / "data" / "download.py"


def archive(path, *members):
    """A .tar.gz; its members are (name, link target or None)."""
    with tarfile.open(path, "w:gz") as tar:
        for name, link in members:
            info = tarfile.TarInfo(name)
            if link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, link
                tar.addfile(info)
            else:
                info.size = 4
                tar.addfile(info, io.BytesIO(b"data"))
    return path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest()


def download(url, wanted, folder, *options):
    folder.mkdir(exist_ok=True)
    argv = [sys.executable, *options, SCRIPT, url, wanted, folder]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("old", [False, True], ids=["this Python", "a Python without filters"])
def test_an_archive_is_unpacked_once(tmp_path, old):
    url, wanted = archive(tmp_path / "a.tar.gz", ("set/one.npz", None), ("two.npz", None))
    script, folder = SCRIPT.read_text(), tmp_path / "data"
    if old:  # Debian 12's Python 3.11.2
        script = script.replace('hasattr(tarfile, "data_filter")', "False")
        assert "False else {}" in script
    folder.mkdir()
    argv = [sys.executable, "-c", script, url, wanted, folder]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{url} is unpacked\n"), done.stderr
    assert (folder / "set" / "one.npz").read_text() == (folder / "two.npz").read_text() == "data"
    os.remove(tmp_path / "a.tar.gz")
    again = download(url, wanted, folder)
    assert (again.returncode, again.stdout) == (0, f"{url} was unpacked before\n"), again.stderr


def test_a_wrong_sum_leaves_nothing(tmp_path):
    url, right = archive(tmp_path / "a.tar.gz", ("one.npz", None))
    done = download(url, "0" * 64, tmp_path / "data")
    assert done.returncode == 1
    assert done.stderr == f"data.download.sha256 must be the sum of {url}, {right}, got {'0' * 64}\n"
    assert list((tmp_path / "data").iterdir()) == []


def test_an_address_that_does_not_answer_is_named(tmp_path):
    done = download((tmp_path / "none").as_uri(), "0" * 64, tmp_path / "data")
    assert done.returncode == 1
    assert done.stderr.startswith("data.download.url must answer and fit into the volume, got ")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("member", [("../out.npz", None), ("/out.npz", None), ("link", "/etc"), ("a/link", "one.npz")])
def test_what_lies_elsewhere_is_refused(tmp_path, member):
    url, wanted = archive(tmp_path / "a.tar.gz", ("one.npz", None), member)
    done = download(url, wanted, tmp_path / "data")
    assert done.returncode == 1
    assert done.stderr == f"data.download.url must hold files and folders below its top only, got {member[0]}\n"
    assert list((tmp_path / "data").iterdir()) == []
