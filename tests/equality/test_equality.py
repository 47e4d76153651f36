"""The comparison of two trees: recordings repeat, and one changed bit is found."""

import gzip
import json
import math
from pathlib import Path

import pytest

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


def test_a_difference_is_allowed_in_its_cases_up_to_its_size(recording: Path) -> None:
    old = json.loads(gzip.decompress(recording.read_bytes()))["cases"][SOME[0]]["0"]["train_loss"][3]
    for relative, pattern, ends in ((5e-13, "*/float64", 0), (5e-13, "*/float32", 1), (5e-12, "*/float64", 1)):
        file = changed(recording, SOME[0], "train_loss", 3, (float.fromhex(old) * (1 + relative)).hex())
        assert compare.main([str(recording), str(file), "--allow", pattern, "1e-12"]) == ends


def test_what_is_allowed_must_be_needed_and_small(recording: Path) -> None:
    assert compare.main([str(recording), str(recording), "--allow", "*/float64", "1e-12"]) == 1
    with pytest.raises(SystemExit, match="at most 1e-11"):
        compare.allowed([("*/float64", "1e-9")])
    assert compare.allowed([("*/float32", "1e-5")]) == {"*/float32": 1e-5}


@pytest.mark.parametrize("value", [None, "absent", 1, "nan"], ids=str)
def test_other_types_are_differences_whatever_is_allowed(recording: Path, value: object) -> None:
    file = changed(recording, SOME[0], "train_loss", 3, value)
    assert compare.main([str(recording), str(file), "--allow", "*/float64", "1e-12"]) == 1


def test_a_case_of_only_one_recording_is_a_difference(recording: Path, tmp_path: Path) -> None:
    content = json.loads(gzip.decompress(recording.read_bytes()))
    del content["cases"][SOME[0]]
    file = tmp_path / "fewer.json.gz"
    write(content, file)
    assert compare.main([str(recording), str(file)]) == 1
    assert compare.main([str(file), str(recording)]) == 1


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
