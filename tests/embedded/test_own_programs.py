"""Programs of people's own from end to end on this computer: the examples, with the real worker processes."""

import contextlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import driftline
from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from service.driver.job import PackJob
from service.driver.programs.program_pack import ProgramPack
from service.embedded import program_probe
from service.embedded.embedded_run import EmbeddedRun
from service.embedded.local_studies import LocalStudies
from service.embedded.program_probe import Probe, probed
from tests.conftest import TESTS

pytestmark = [pytest.mark.ray, pytest.mark.slow]

EXAMPLES = TESTS.parent / "examples" / "programs"

Lines = tuple[list[tuple[int, float, int]], bytes | None]
"""Rounds, losses and examples of a run, and what it goes on from."""


def small(tmp_path: Path) -> Study:
    """The example in shell and awk, cut down."""
    shutil.copy(EXAMPLES / "descent.sh", tmp_path)
    text = (EXAMPLES / "descent.yaml").read_text(encoding="utf-8")
    (tmp_path / "study.yaml").write_text(text.replace("trials_per_method: 8", "trials_per_method: 3, confirm: 1"))
    return Study.from_yaml(tmp_path / "study.yaml")


def test_a_program_in_shell_runs_from_its_copy_and_is_in_the_results(tmp_path: Path) -> None:
    study, out = small(tmp_path), tmp_path / "out"
    frontier = driftline.run(study, out, progress=False)
    assert frontier.data["study"] == "descent"
    assert all(method["recommendations"] for method in frontier.data["methods"].values())
    assert "momentum" in frontier.table()
    assert (out / "program" / "descent.sh").read_bytes() == (EXAMPLES / "descent.sh").read_bytes()
    assert (out / "trials" / "plain-search-0.log").exists()
    assert not list((out / "trials").glob("*.work"))
    assert "multiplications" in (out / "frontier.html").read_text(encoding="utf-8")
    assert driftline.frontier(out, cost="multiplications").data["scale"]["last"] == 81
    with pytest.raises(InvalidSpec, match=r"^program: its models are its own"):
        driftline.log_models(out)
    (tmp_path / "descent.sh").write_text("exit 1")
    with pytest.raises(InvalidSpec, match=r"^program.files: descent.sh must be as it was when the study in .* began"):
        EmbeddedRun(out, Study.from_yaml(tmp_path / "study.yaml"))
    with pytest.raises(InvalidSpec, match=r"^program: runs on this computer alone, got a Ray cluster at auto"):
        EmbeddedRun(out, ray_address="auto")


def test_validate_tries_a_program_twice_with_one_seed(tmp_path: Path) -> None:
    study = small(tmp_path)
    estimate = LocalStudies(tmp_path).validate(study).estimate
    assert estimate is not None
    assert estimate.seconds is not None
    plain, momentum = estimate.rests_on[1:3]
    assert "two runs with one seed reported equal lines; after round 2: loss" in plain
    assert "multiplications 6" in momentum
    (tmp_path / "descent.sh").write_text((tmp_path / "descent.sh").read_text().replace("x * x, 3", "x * x + '$$', 3"))
    lines = LocalStudies(tmp_path).validate(study).estimate.rests_on  # type: ignore[union-attr]
    assert "two runs with one seed differ (round 1: loss" in lines[1]
    (tmp_path / "descent.sh").write_text('printf \'{"round": 1, "los": 1}\\n\' >> "$(sed "$FIND" "$DRIFTLINE_TRIAL")"')
    find = r's/.*"reports": "\([^"]*\)".*/\1/p;d'
    wrong = Study.from_json(study.to_json() | {"program": study.to_json()["program"] | {"env": {"FIND": find}}})
    with pytest.raises(InvalidSpec) as caught:
        LocalStudies(tmp_path).validate(wrong)
    first, second = str(caught.value).splitlines()
    assert first.startswith(
        'methods[0]: plain: the program reported "los", which program.metrics and costs do not have'
    )
    assert second.startswith("methods[1]: momentum: the program reported")


def test_the_estimate_counts_one_start_a_worker_for_a_program_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small(tmp_path)
    assert study.program is not None
    probe = Probe("plain", [{"round": 1, "wall_seconds": 0.0}], "", round_s=0.0, around_s=6.0)
    monkeypatch.setattr(program_probe, "_probe", lambda study, label: probe)
    monkeypatch.setattr(program_probe, "usable_cores", lambda: 2)
    assert probed(study).seconds == 6.0 * 2 * study.budget.trials / 2
    stays = study.program.model_copy(update={"reuse": True})
    assert probed(study.model_copy(update={"program": stays})).seconds == 6.0


def test_a_plain_torch_loop_is_tuned_as_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    train = __import__("digits_torch").train
    values = {"client_lr": driftline.Float(0.1, 1.0), "local_steps": 1, "prox": 0}
    job = driftline.tune(
        train, methods={"fedavg": values}, quality="test_loss", rounds=2, trials=1, seeds=1, out=tmp_path / "out"
    )
    frontier = job.wait().frontier()
    trials = job.trials()
    assert [trial.state for trial in trials] == ["COMPLETE"] * 2
    best = frontier.best()
    assert (best.label, best.hyperparameters["local_steps"]) == ("fedavg", 1)
    assert best.quality < 2.302


def test_the_same_loop_trains_many_trials_in_one_process(tmp_path: Path) -> None:
    study = Study.from_yaml(EXAMPLES / "digits_torch.yaml")
    values = {"client_lr": 0.4, "local_steps": 4, "prox": 0.1}
    document = trial_document(study, "fedprox", [values], 0) | {"rounds": 2}
    curves, resting = [], None
    for number in range(2):
        pack = ProgramPack(PackJob("pack", document, "", place=str(tmp_path / str(number))), resting=resting)
        assert resting is None or (pack._process is resting.process)
        curves.append([(line["round"], line["test_loss"]) for line in pack.advance()])
        resting, pack.resting = pack.resting, None
        pack.close()
    assert resting is not None
    resting.process.dismiss()
    assert [number for number, _ in curves[0]] == [0, 1, 2]
    assert curves[0][2][1] < curves[0][0][1]
    assert curves[1] == curves[0], "a trial depends on its seed alone"


def test_diloco_under_torchrun_goes_on_from_a_rung_to_the_bit(tmp_path: Path) -> None:
    """Two processes that talk by gloo."""
    study = Study.from_yaml(EXAMPLES / "diloco_torchrun.yaml")
    values = {"inner_lr": 0.01, "outer_lr": 0.7, "outer_momentum": 0.9, "local_steps": 2}
    document = trial_document(study, "diloco", [values], 0) | {"rounds": 3}

    def run(name: str, saved: bytes | None = None, until: int | None = None) -> ProgramPack:
        return ProgramPack(PackJob("pack", document, "", until=until, cpus=2, place=str(tmp_path / name)), saved)

    whole, first = run("whole"), run("parts", until=1)
    curve = [(line["round"], line["test_loss"]) for line in whole.advance()]
    begun = first.advance()
    second = run("parts", first.to_bytes())
    assert [(line["round"], line["test_loss"]) for line in [*begun, *second.advance()]] == curve
    assert [number for number, _ in curve] == [1, 2, 3]
    assert curve[-1][1] < curve[0][1]
    for pack in (whole, first, second):
        assert pack.remark is None
        pack.close()


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Python of an environment with flwr, above that of the tests: as the example says, but without its simulation."""
    folder = tmp_path_factory.mktemp("flower") / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=100)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "above.pth").write_text(f"{sysconfig.get_path('purelib')}\n{TESTS.parent}\n")
    wanted = (EXAMPLES / "flower" / "requirements.txt").read_text(encoding="utf-8").splitlines()[0]
    plain = wanted.replace("[simulation]", "")
    assert plain.startswith("flwr==")
    python = str(folder / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile", plain]
    subprocess.run(install, check=True, timeout=280)
    return python


def test_a_flower_app_goes_on_from_a_rung(tmp_path: Path, flower: str) -> None:
    """Its apps, strategies and messages; what Flower's simulation does with Ray, a loop does here.

    Not to the bit: Flower's strategies draw the order of the clients, in which they are summed, without a seed.
    """
    study = Study.from_yaml(EXAMPLES / "flower" / "flower.yaml")
    assert study.program is not None
    assert study.program.command == [".venv/bin/python", "train.py"]
    loop = str(TESTS / "embedded" / "flower_in_process.py")

    def lines(label: str, name: str, saved: bytes | None = None, until: int | None = None) -> Lines:
        mu = {"proximal_mu": 0.5 if label == "fedprox" else 0.0}
        document = trial_document(study, label, [{"client_lr": 0.3, "local_steps": 2, **mu}], 0) | {"rounds": 3}
        document["program"]["command"] = [flower, loop, "train.py"]
        pack = ProgramPack(PackJob("pack", document, "", until=until, place=str(tmp_path / name)), saved)
        with contextlib.closing(pack):
            trained = [(line["round"], line["test_loss"], line["examples"]) for line in pack.advance()]
            assert pack.remark is None
            return trained, pack.to_bytes() if until else None

    curve, _ = lines("fedavg", "whole")
    begun, saved = lines("fedavg", "parts", until=1)
    ended, _ = lines("fedavg", "parts", saved)
    prox, _ = lines("fedprox", "prox")
    assert [(number, examples) for number, _, examples in [*begun, *ended]] == [(0, 0), (1, 512), (2, 1024), (3, 1536)]
    assert np.allclose([*begun, *ended], curve, rtol=1e-12, atol=0)
    assert curve[-1][1] < prox[-1][1] < curve[0][1]


COUNTED = """
import time
from driftline import trial
open("starts", "a").write("x")
for t in trial.each(rate=0.1):
    x, began = 1.0, time.monotonic()
    for r in t.rounds():
        waited, began = time.monotonic() - began, time.monotonic()
        x -= t["rate"] * x
        if r in (2, 4) or t.report_due:
            t.report(r, loss=x * x, waited=waited if r in (2, 4) else None)
"""
"""Counts its starts, and measures how long it waits at the rungs of rounds 1 and 3; leaves out rounds."""


def test_without_checkpoints_a_worker_tells_its_program_at_once_how_far_to_go(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(COUNTED)
    program = {
        "command": ["python", "-S", "counted.py"],
        "metrics": {"loss": "falls", "waited": "falls"},
        "env": {"PYTHONPATH": str(TESTS.parent)},
        "folder": str(tmp_path),
        "reuse": True,
    }
    asking = {"asking": "asynchronous"}
    document = {
        "name": "counted",
        "program": program,
        "methods": [{"label": "mine", "space": {"rate": {"float": [0.1, 0.9]}}}],
        "objective": {"quality": "loss", "cost": "rounds"},
        "budget": {"trials_per_method": 4, "rounds": 9, "rungs": "auto", "seeds": 1, "confirm": 1} | asking,
        "resources": {"gpu": 0},
    }
    with driftline.Client(out=tmp_path) as client:
        curves = client.submit(Study.from_json(document)).wait().curves()
    waits = [wait for curve in curves.values() for wait in curve["waited"] if wait is not None]
    starts = len((tmp_path / "starts").read_text())
    assert len(curves) == 5
    assert starts <= 2, "a start for each worker"
    assert {number for curve in curves.values() for number in curve["round"]} == {1, 2, 3, 4, 9}
    assert waits, "some have gone on"
    assert min(waits) < PackJob("", {}, "").chunk_seconds, "told before the next step"
