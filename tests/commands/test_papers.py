"""`driftline papers`: the list, mistakes, and whether a figure holds in a folder."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from driftline.errors import DriftlineError, InvalidSpec, NotFound
from driftline.study.papers import preset, presets
from service.cli.main import app
from service.store.store import Store
from tests.command_line import printed, refusal
from tests.recorder.stored import Stored
from tests.results.samples import confirmed

HIGH = [0.90, 0.91, 0.89, 0.92, 0.90, 0.88]
LOW = [0.80, 0.82, 0.79, 0.80, 0.81, 0.78]


def test_the_list_has_every_preset_with_its_statement() -> None:
    text = " ".join(printed("papers").split())
    for name, one in presets():
        assert f"{name}: {one.figure} {one.statement}" in text
    assert [row["name"] for row in json.loads(printed("papers", "--json"))] == [name for name, _ in presets()]


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("run a-fig66", NotFound, 'no preset "a-fig66": did you mean a-fig6'),
        ("run a-fig6 --scale smal", InvalidSpec, '--scale: must be small or full, got "smal"'),
        ("run a-fig12 --panel femnis", InvalidSpec, '--panel: no panel "femnis": did you mean femnist'),
        ("check a-fig6 nowhere", NotFound, "no study in nowhere"),
    ],
)
def test_mistakes_are_named(words: str, error: type[DriftlineError], message: str, tmp_path: Path) -> None:
    raised = refusal("papers", *words.split())
    assert isinstance(raised, error)
    assert message in str(raised)


def stored(folder: Path, name: str, panel: str = "", **ends: list[float]) -> None:
    """A finished study of a preset whose labels end at these accuracies."""
    folder.mkdir(parents=True)
    study = preset(name).study_of(name, "small", panel)
    store = Store(folder / "driftline.db")
    made = Stored(store, [], 0, spec=study.to_json())
    for label, values in ends.items():
        made.add(confirmed([[0.1, 0.3, end] for end in (1.0, *values)], label=label))
    made.succeed()
    store.close()


def test_check_says_what_holds_and_by_which_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    stored(folder, "b-fig4", steps_1=LOW, steps_10=HIGH, steps_20=LOW, steps_40=LOW)
    result = CliRunner().invoke(app, ["papers", "check", "b-fig4", str(folder)], catch_exceptions=False)
    assert result.stderr == f"note: the study in {folder} is b-fig4 at neither scale, but changed\n"
    figure, *_, last = result.stdout.splitlines()
    assert figure == "[B] figure 4: undecided"
    assert last.startswith("  steps_1 ahead of steps_40 over all costs in client_gradients: undecided, ")
    picture = tmp_path / "curves.png"
    found = json.loads(printed("papers", "check", "b-fig4", str(folder), "--json", "--picture", str(picture)))
    assert picture.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "keys").write_text("two keys")
    (tmp_path / "link.png").symlink_to(tmp_path / "keys")
    printed("papers", "check", "b-fig4", str(folder), "--picture", str(tmp_path / "link.png"))
    assert (tmp_path / "keys").read_text() == "two keys"
    assert not (tmp_path / "link.png").is_symlink()
    with pytest.raises(InvalidSpec, match=r"--picture: cannot write '.*missing/curves.png': No such file"):
        printed("papers", "check", "b-fig4", str(folder), "--picture", str(tmp_path / "missing" / "curves.png"))
    outcomes = [row["outcome"] for row in found["panels"][""]]
    assert outcomes == ["undecided", "agrees", "agrees", "undecided"]
    with pytest.raises(InvalidSpec, match=r'DIR: must hold the study of b-fig2, but .* has no label "gradalign"'):
        printed("papers", "check", "b-fig2", str(folder))


def test_a_metric_is_compared_with_that_of_another_panel(tmp_path: Path) -> None:
    for panel, size in (("smile", 50.0), ("characters", 0.03)):
        folder = tmp_path / panel
        folder.mkdir()
        study = preset("c-fig3").study_of("c-fig3", "small", panel)
        store = Store(folder / "driftline.db")
        made = Stored(store, [], 0, spec=study.to_json())
        for seed, noise in enumerate((1.0, *HIGH)):
            drawn = {"dissimilarity_offset_sq": [float("nan"), size * noise, size * noise], "test_loss": [3, 2, noise]}
            made.add(confirmed([[0.1, 0.3, noise]] * 7, label="mixed", **drawn)[seed : seed + 1])
        made.succeed()
        store.close()
    found = json.loads(printed("papers", "check", "c-fig3", str(tmp_path), "--json"))["panels"]
    assert found["smile"] == []
    assert found["characters"][0]["outcome"] == "agrees"
    assert found["characters"][0]["why"].startswith("0.0006 times (")
    assert found["movies"][0]["why"] == "not run"


def test_a_panel_that_was_not_run_is_undecided(tmp_path: Path) -> None:
    stored(tmp_path / "iid", "b-fig3", panel="iid", d_0=LOW, **{"d_5e-2": LOW}, d_2=HIGH, d_10=LOW)
    found = json.loads(printed("papers", "check", "b-fig3", str(tmp_path), "--json"))
    assert {(row["outcome"], row["why"]) for row in found["panels"]["one_class"]} == {("undecided", "not run")}
    assert [row["outcome"] for row in found["panels"]["iid"]] == ["agrees", "agrees", "agrees"]
    assert found["outcome"] == "undecided"
