"""The digest follows from the source alone."""

import shutil
from pathlib import Path

from service.code_digest import MODULES, code_digest, digest_of

ROOT = Path(__file__).parents[2]


def test_a_copy_has_the_same_digest_and_an_edit_another_one(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages" / "service"
    shutil.copytree(ROOT / "service" / "driver", folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = digest_of({"service": ROOT / "service" / "driver"})
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "job.cpython-311.pyc").write_bytes(b"compiled")
    assert digest_of({"service": folder}) == before
    with (folder / "job.py").open("a") as file:
        file.write("\n")
    assert digest_of({"service": folder}) != before
    assert digest_of({"trainers": ROOT / "service" / "driver"}) != before


def test_this_checkout_is_what_is_read() -> None:
    assert code_digest() == digest_of({module: ROOT / module for module in MODULES})
