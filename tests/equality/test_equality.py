"""The comparison of two trees: recordings repeat, and one changed bit is found."""

import gzip
import json
import math
from pathlib import Path

import pytest
import yaml

from tests.equality import compare
from tests.equality.cases import DTYPES, METHODS, MODELS, cases
from tests.equality.record import exact, record, write

ROOT = Path(__file__).parents[2]
SOME = ("fedprox/pack/float64", "scaffold/resumed/float32", "variant/fedprox/quadratic/0")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few cases, recorded with the code of this tree."""
    file = tmp_path_factory.mktemp("recorded") / "old.json.gz"
    write(record(ROOT, [case for case in cases() if case.name in SOME]), file)
    return file


def changed(recording: Path, case: str, key: str, line: int, value: object) -> Path:
    """The recording with another value in one place of its first member."""
    content = json.loads(gzip.decompress(recording.read_bytes()))
    content["cases"][case]["0"][key][line] = value
    file = recording.with_name("new.json.gz")
    write(content, file)
    return file


def exceptions(folder: Path, **entry: object) -> Path:
    file = folder / "exceptions.yaml"
    file.write_text(yaml.safe_dump([{"cases": "*/float64", "keys": "train_loss", "reason": "a test", **entry}]))
    return file


def test_recorded_again_in_another_order_is_equal_to_the_bit(recording: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.json.gz"
    chosen = [case for case in cases() if case.name in SOME]
    content = record(ROOT, chosen[::-1])
    assert [name for name, case in content["cases"].items() if "error" in case] == []
    write(content, again)
    assert compare.differences(recording, again) == []
    assert compare.main([str(recording), str(again)]) == 0


def test_one_changed_bit_is_found(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = json.loads(gzip.decompress(recording.read_bytes()))["cases"][SOME[0]]["0"]["train_loss"][3]
    new = math.nextafter(float.fromhex(old), math.inf).hex()
    file = changed(recording, SOME[0], "train_loss", 3, new)
    (difference,) = compare.differences(recording, file)
    assert difference.leaf == (SOME[0], "train_loss", "member 0 [3]")
    assert 0 < difference.relative < 1e-15
    assert compare.main([str(recording), str(file)]) == 1
    assert f"{SOME[0]}: train_loss member 0 [3]: {float.fromhex(old)!r} -> " in capsys.readouterr().out


def test_an_exception_allows_what_it_lists_and_no_more(recording: Path, tmp_path: Path) -> None:
    old = json.loads(gzip.decompress(recording.read_bytes()))["cases"][SOME[0]]["0"]["train_loss"][3]
    near, far = (float.fromhex(old) * (1 + relative) for relative in (5e-13, 5e-12))
    allowed = exceptions(tmp_path, relative=1e-12)
    file = changed(recording, SOME[0], "train_loss", 3, near.hex())
    assert compare.main([str(recording), str(file), "--exceptions", str(allowed)]) == 0
    file = changed(recording, SOME[0], "train_loss", 3, far.hex())
    assert compare.main([str(recording), str(file), "--exceptions", str(allowed)]) == 1


def test_other_texts_need_an_exception_for_texts(recording: Path, tmp_path: Path) -> None:
    content = json.loads(gzip.decompress(recording.read_bytes()))
    content["cases"][SOME[0]]["0"]["state"] = ["SUCCEEDED"]
    old, new = tmp_path / "old.json.gz", tmp_path / "new.json.gz"
    write(content, old)
    content["cases"][SOME[0]]["0"]["state"] = ["FAILED"]
    write(content, new)
    allowed = exceptions(tmp_path, keys="state", relative=1e-12)
    assert compare.main([str(old), str(new), "--exceptions", str(allowed)]) == 1
    for kind in ("text", "anew"):
        allowed = exceptions(tmp_path, keys="state", **{kind: True})
        assert compare.main([str(old), str(new), "--exceptions", str(allowed)]) == 0


def test_what_is_defined_anew_may_have_any_value(recording: Path, tmp_path: Path) -> None:
    file = changed(recording, SOME[0], "train_loss", 1, exact(17.0))
    allowed = exceptions(tmp_path, anew=True)
    assert compare.main([str(recording), str(file), "--exceptions", str(allowed)]) == 0


def test_unused_exceptions_and_those_without_need_are_errors(recording: Path, tmp_path: Path) -> None:
    unused = exceptions(tmp_path, relative=1e-12)
    assert compare.main([str(recording), str(recording), "--exceptions", str(unused)]) == 1
    with pytest.raises(SystemExit, match="at most 1e-11"):
        compare.exemptions(exceptions(tmp_path, relative=1e-9))
    with pytest.raises(SystemExit, match="must have a reason"):
        compare.exemptions(exceptions(tmp_path, relative=1e-12, reason=" "))


@pytest.mark.parametrize("value", [None, "absent", 1, "nan"], ids=str)
def test_other_types_are_differences_whatever_is_tolerated(recording: Path, tmp_path: Path, value: object) -> None:
    file = changed(recording, SOME[0], "train_loss", 3, value)
    allowed = exceptions(tmp_path, relative=1e-12)
    assert compare.main([str(recording), str(file), "--exceptions", str(allowed)]) == 1


def test_a_case_of_only_one_recording_is_a_difference(recording: Path, tmp_path: Path) -> None:
    content = json.loads(gzip.decompress(recording.read_bytes()))
    del content["cases"][SOME[0]]
    file = tmp_path / "fewer.json.gz"
    write(content, file)
    assert compare.main([str(recording), str(file)]) == 1
    assert compare.main([str(file), str(recording)]) == 1


def test_each_key_of_an_exception_must_be_used(recording: Path, tmp_path: Path) -> None:
    old = json.loads(gzip.decompress(recording.read_bytes()))["cases"][SOME[0]]["0"]["train_loss"][3]
    file = changed(recording, SOME[0], "train_loss", 3, (float.fromhex(old) * (1 + 5e-13)).hex())
    allowed = exceptions(tmp_path, keys=["train_loss", "test_loss"], relative=1e-12)
    assert compare.main([str(recording), str(file), "--exceptions", str(allowed)]) == 1


def test_every_case_has_a_name_of_its_own_and_every_method_its_six() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
    wanted = {
        f"{method}/{how}/{dtype}" for method in METHODS for how in ("alone", "pack", "resumed") for dtype in DTYPES
    }
    assert wanted <= set(names)
    assert {case.oracle for case in cases()} >= {model.oracle for model in MODELS.values()}


def test_exact_tells_what_equality_does_not() -> None:
    assert exact(0.0) != exact(-0.0)
    assert exact(math.nan) == exact(math.nan)
    assert not compare.same(1, True)
    assert not compare.same(1, 1.0)
