"""The comparison with version 0.1: recordings repeat, one changed bit is found, no legal pair is missing."""

import gzip
import json
import math
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.equality import compare, covering, tree
from tests.equality.cases import DTYPES, FACTORS, METHODS, MODELS, cases, write_arrays
from tests.equality.cases import covering as covering_rows
from tests.equality.record import Tree, exact, record, write
from tests.equality.studies import STUDIES, masked
from tests.equality.version_0_1.make import HERE, contents

ROOT = Path(__file__).parents[2]
SOME = ("fedprox/pack/float64", "scaffold/resumed/float32", "variant/fedprox/quadratic/0")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few cases, recorded with the code of this tree."""
    file = tmp_path_factory.mktemp("recorded") / "old.json.gz"
    write(record(ROOT, [case for case in cases() if case.name in SOME]), file)
    return file


@pytest.fixture(scope="module")
def legal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[covering.Legal]:
    folder = tmp_path_factory.mktemp("arrays")
    write_arrays(folder)
    with Tree(ROOT, folder) as tree:
        yield covering.asking(tree)


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


def test_renamed_keys_are_compared_with_what_they_were(recording: Path, tmp_path: Path) -> None:
    content = json.loads(gzip.decompress(recording.read_bytes()))
    for case in content["cases"].values():
        for columns in case.values():
            columns["loss_of_training"] = columns.pop("train_loss")
    file = tmp_path / "renamed.json.gz"
    write(content, file)
    assert compare.main([str(recording), str(file)]) == 1
    content["about"]["renamed"] = {"train_loss": "loss_of_training"}
    write(content, file)
    assert compare.main([str(recording), str(file)]) == 0


def in_todays_spelling(name: str) -> dict[str, Any]:
    """The recording of a study of 0.1 as a tree of today would have written it."""
    recording = compare.read(HERE / "studies" / f"{name}.json.gz")
    names = recording["about"]["renamed"] = tree.renamed()

    def spelled(value: Any) -> Any:
        if isinstance(value, dict):
            return {compare._respelled(key, names): spelled(item) for key, item in value.items()}
        return [spelled(item) for item in value] if isinstance(value, list) else compare._respelled(value, names)

    recording["cases"] = {name: spelled(tree.results(recording["cases"][name]))}
    return recording


def unexpected(name: str, recording: dict[str, Any], folder: Path) -> list[compare.Difference]:
    """What differs from a study of 0.1 beyond the exceptions of studies.yaml."""
    old, new = folder / "old", folder / "new"
    for made in (old, new):
        made.mkdir(exist_ok=True)
    shutil.copy(HERE / "studies" / f"{name}.json.gz", old)
    write(recording, new / f"{name}.json.gz")
    left, _ = compare.verdict(compare.differences(old, new), compare.exemptions(ROOT / "tests/equality/studies.yaml"))
    return left


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study["name"])
def test_a_study_of_0_1_in_todays_spelling_is_the_same(study: dict[str, Any], tmp_path: Path) -> None:
    assert unexpected(study["name"], in_todays_spelling(study["name"]), tmp_path) == []


def test_results_of_0_1_get_todays_names_and_keys() -> None:
    case = in_todays_spelling("mixed")["cases"]["mixed"]
    first = case["api"]["trials"]["trials"][0]
    assert (first["configuration"], first["deaths"], first["death_round"]) == (0, 0, None)
    parallel = {"client_lr", "server_lr", "local_steps", "federated_weight", "central_lr", "central.beta1"}
    assert set(first["hyperparameters"]) == parallel | {"client.momentum"}
    assert case["api"]["study"]["spec"]["methods"][0]["central"]["name"] == "adam"
    assert case["api"]["study"]["spec"]["budget"]["confirm"] == 1
    row = case["trials.csv"]["STUDY.two-way.c00001"]
    assert (row["configuration"], row["merge_by"], row["central.beta1"]) == ("3", "mean", "")
    assert not {"merge", "client_optimizer", "client_momentum", "setting"} & set(row)
    (point,) = {json.dumps(item["hyperparameters"]) for item in case["frontier.json"]["methods"]["parallel"]["points"]}
    assert "client.momentum" in point


@pytest.mark.parametrize(
    ("name", "path", "factor"),
    [
        ("mixed", "api trials trials 9 hyperparameters server_lr", 1 + 2**-52),
        ("mixed", "api curves curves STUDY.two-way.s00003 test_accuracy 0", 1 + 2**-52),
        ("mixed", "api curves curves STUDY.two-way.s00003 test_loss 2", 1 + 1e-13),
        ("plateau", "api curves curves STUDY.decayed.s00000 train_loss 1", 1 + 2**-52),
        ("plateau", "api curves curves STUDY.fedadam.s00000 client_lr 1", 1 + 2**-52),
        ("digits", "api curves curves STUDY.fedprox.c00000 test_loss 0", 1 + 2**-52),
    ],
)
def test_exceptions_for_studies_hide_no_other_value(name: str, path: str, factor: float, tmp_path: Path) -> None:
    recording = in_todays_spelling(name)
    *steps, last = (int(step) if step.isdecimal() else step for step in path.split())
    place = recording["cases"][name]
    for step in steps:
        place = place[step]
    place[last] = exact(float.fromhex(place[last]) * factor)
    (difference,) = unexpected(name, recording, tmp_path)
    assert 0 < difference.relative < 2e-13
    assert all(step in f"{difference.leaf.key} " for step in path.split() if not step.isdecimal())


def test_each_key_of_an_exception_must_be_used(recording: Path, tmp_path: Path) -> None:
    old = json.loads(gzip.decompress(recording.read_bytes()))["cases"][SOME[0]]["0"]["train_loss"][3]
    file = changed(recording, SOME[0], "train_loss", 3, (float.fromhex(old) * (1 + 5e-13)).hex())
    allowed = exceptions(tmp_path, keys=["train_loss", "test_loss"], relative=1e-12)
    assert compare.main([str(recording), str(file), "--exceptions", str(allowed)]) == 1


def test_every_legal_pair_is_covered(legal: covering.Legal) -> None:
    """Of the rows that an uncovered pair could be in, one in 40; `covering.py --check` tries them all."""
    rows = [tuple(row.values()) for row in covering_rows()]
    assert covering.problems(rows, legal, every=40) == []
    assert {name for row in rows for name in row} == {name for names in FACTORS.values() for name in names}


def test_a_pair_that_is_left_out_is_found(legal: covering.Legal) -> None:
    rows = [tuple(row.values()) for row in covering_rows() if (row["method"], row["model"]) != ("fedavg", "cnn")]
    wrong = covering.problems(rows, legal, every=40)
    assert any(line.endswith("is legal, but no row has ((0, 'fedavg'), (5, 'cnn'))") for line in wrong)


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
    assert masked({"created_at": "now", "finished_at": None, "x": 0.5}) == {
        "created_at": "masked",
        "finished_at": None,
        "x": "0x1.0000000000000p-1",
    }


def test_the_recording_of_0_1_has_every_case() -> None:
    kept = compare.read(HERE / "curves.json.gz")
    assert list(kept["cases"]) == [case.name for case in cases()]
    assert [name for name, case in kept["cases"].items() if "error" in case] == []


def test_studies_do_not_depend_on_the_machine() -> None:
    """All trials of a label and seed fit into one pack, and the sampler does not learn."""
    for study in STUDIES:
        budget, width = study["budget"], study["resources"]["packs"]
        assert max(budget["trials_per_method"], budget.get("front", 0)) <= width
        assert study["sampler"] in ("grid", "quasi_random", "random")


FIXTURES = (
    "checkpoints.tar.gz",
    "folder.tar.gz",
    "service.db.gz",
    "service.sql.gz",
    *(f"studies/{study['name']}.json.gz" for study in STUDIES),
)


@pytest.mark.parametrize("name", FIXTURES)
def test_what_0_1_left_names_no_machine(name: str) -> None:
    for inside, data in contents(name, (HERE / name).read_bytes()).items():
        assert not re.findall(rb"/(?:tmp|root|home|Users)/[\w.-]+", data), inside


def test_what_0_1_left_is_small() -> None:
    assert sum((HERE / name).stat().st_size for name in (*FIXTURES, "driftline-0.4.0.tgz")) < 1e6


def test_the_services_database_has_a_study_in_every_state(tmp_path: Path) -> None:
    file = tmp_path / "service.db"
    file.write_bytes(gzip.decompress((HERE / "service.db.gz").read_bytes()))
    dump = gzip.decompress((HERE / "service.sql.gz").read_bytes()).decode()
    with closing(sqlite3.connect(file)) as database:
        studies = dict(database.execute("SELECT state, id FROM studies").fetchall())
        assert set(studies) == {"PENDING", "QUEUED", "RUNNING", "PAUSED", "SUCCEEDED", "FAILED", "CANCELLED"}
        held = database.execute("SELECT holder FROM drivers WHERE study_id = ? AND released = 0", (studies["RUNNING"],))
        assert held.fetchall() == [("driver-0/1",)]
        (count,) = database.execute("SELECT count(*) FROM trials").fetchone()
        query = "SELECT checkpoint FROM trials WHERE study_id = ? AND checkpoint IS NOT NULL"
        kept = {row[0] for row in database.execute(query, (studies["PAUSED"],))}
    assert all(study in dump for study in studies.values())
    assert dump.count("INSERT INTO public.trials ") == count
    inside = contents("checkpoints.tar.gz", (HERE / "checkpoints.tar.gz").read_bytes())
    served = {f"/srv/driftline/{name.partition(':')[2]}" for name in inside}
    assert kept
    assert kept <= served
