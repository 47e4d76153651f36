"""Study files: the YAML that is read, and what cannot be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import InvalidSpec, NotFound
from driftline.study import yaml_files
from driftline.study.spec import Study

from .test_spec import TEXT, study


def test_a_study_file(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(TEXT, encoding="utf-8")
    assert Study.from_yaml(path) == Study.from_yaml(str(path)) == study()
    with pytest.raises(NotFound, match=r"no study file .*absent\.yaml"):
        Study.from_yaml(tmp_path / "absent.yaml")
    path.write_text("name: [\n", encoding="utf-8")
    with pytest.raises(InvalidSpec, match=r"^study\.yaml: line 2, column 1: "):
        Study.from_yaml(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidSpec, match="a study file must be text"):
        Study.from_yaml(path)
    with pytest.raises(InvalidSpec, match="cannot read study file"):
        Study.from_yaml(tmp_path)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_way_to_write_a_number_is_a_number(value):
    for text in (repr(value), f"{value:e}", f"{value:E}", f"{value:.17g}"):
        read = yaml_files.parse(f"x: {text}")["x"]
        assert isinstance(read, float | int)
        assert read == float(text)


def test_yaml_texts_that_old_loaders_change_stay_as_they_are():
    assert yaml_files.parse("[no, on, y, 1:30, 2020-01-01, 0x10, 1_000, .5, 010, ~, null, True]") == [
        "no", "on", "y", "1:30", "2020-01-01", "0x10", "1_000", 0.5, 10, None, None, True,
    ]  # fmt: skip


def test_yaml_anchors_merge_and_tags():
    assert yaml_files.parse("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}") == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}
    with pytest.raises(InvalidSpec, match="line 1, column 1: could not determine a constructor"):
        yaml_files.parse("!!python/object/apply:os.system [ls]")
    with pytest.raises(InvalidSpec, match="nested"):
        yaml_files.parse("[" * 100_000)


@pytest.mark.parametrize(("text", "came"), [("", "nothing in it"), ("# later\n", "nothing in it"), ("- a\n", '["a"]')])
def test_a_file_without_a_study_is_named(tmp_path, text, came):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(InvalidSpec) as caught:
        Study.from_yaml(path)
    assert str(caught.value) == f"study.yaml: must hold a study, a mapping of keys to values, got {came}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: " + "9" * 5000, "line 1, column 7: a number must have at most 400 digits, got "),
        ("name: !!int x", "a tag (!!) must suit its value, got "),
        ("name: !!timestamp x", "a tag (!!) must suit its value, got "),
        ("name: !!bool x", "a tag (!!) must suit its value, got "),
        ("name: !" + "x" * 10_000 + " 1", "line 1, column 7: could not determine a constructor for the tag"),
        ("x" * 900 + ": 1\n" + "x" * 900 + ": 2", "line 2, column 1: key "),
    ],
    ids=range(6),
)
def test_yaml_that_python_cannot_read_is_refused_by_its_place(text, message):
    with pytest.raises(InvalidSpec) as caught:
        yaml_files.parse(text)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 400
