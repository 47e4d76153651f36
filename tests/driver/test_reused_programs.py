"""Programs that stay alive for several trials."""

from pathlib import Path
from typing import Any

import pytest

from driftline.study.spec import Study
from service.driver.job import PackJob
from service.driver.programs.program_pack import ProgramPack
from service.driver.programs.report_lines import ProgramError
from service.driver.ray.worker import Worker
from tests.driver.shell_programs import alive, lines_of, trial_of
from tests.driver.store_client import StoreClient
from tests.driver.test_programs import TINY, tiny
from tests.driver.test_search import Bench, facts
from tests.waiting import until

STAYS = """
import os, sys
from driftline import trial
for t in trial.each():
    print("process", os.getpid(), "trains", t["client_lr"])
    for r in t.rounds():
        t.report(r, loss=t["client_lr"] / r)
    if t["client_lr"] == 0.9:
        sys.exit("broken")
"""


def job(folder: Path, name: str, rate: float, **keys: Any) -> PackJob:
    (folder / "stays.py").write_text(STAYS)
    own = {"PYTHONPATH": str(Path(__file__).parents[2]), **keys}
    document = trial_of("", folder, command=["python", "-S", "stays.py"], reuse=True, env=own)
    document["hyperparameters"] = {"client_lr": rate}
    return PackJob("pack", document, "", place=str(folder / name))


def process_of(folder: Path, name: str) -> int:
    """The process that has written a trial's log."""
    log = folder / f"{name}.log"
    until(lambda: "trains" in log.read_text(), 60)
    return int(log.read_text().split()[1])


def test_a_program_trains_several_trials_until_there_is_none(tmp_path: Path) -> None:
    first = ProgramPack(job(tmp_path, "first", 0.5))
    assert [line["loss"] for line in lines_of(first)] == [0.5, 0.25]
    resting, first.resting = first.resting, None
    first.close()
    second = ProgramPack(job(tmp_path, "second", 0.25), resting=resting)
    assert [line["loss"] for line in lines_of(second)] == [0.25, 0.125]
    process = process_of(tmp_path, "first")
    assert process_of(tmp_path, "second") == process
    assert alive(process)
    second.close()
    assert not alive(process)
    assert not list(tmp_path.glob("*.work"))


@pytest.mark.parametrize("why", ["of another kind", "dead"])
def test_another_program_is_started_if_the_one_that_waits_cannot_go_on(tmp_path: Path, why: str) -> None:
    first = ProgramPack(job(tmp_path, "first", 0.5))
    lines_of(first)
    resting, first.resting = first.resting, None
    assert resting is not None
    first.close()
    if why == "dead":
        resting.process.end()
    other = {"MINE": "1"} if why == "of another kind" else {}
    second = ProgramPack(job(tmp_path, "second", 0.25, **other), resting=resting)
    assert [line["loss"] for line in lines_of(second)] == [0.25, 0.125]
    processes = {process_of(tmp_path, name) for name in ("first", "second")}
    assert len(processes) == 2
    second.close()
    assert not any(map(alive, processes))


def test_a_fault_after_the_last_round_is_one_of_its_trial(tmp_path: Path) -> None:
    pack = ProgramPack(job(tmp_path, "first", 0.9))
    assert [line["round"] for line in pack.advance()] == [1]
    with pytest.raises(ProgramError, match=r"ended with exit code 1, after round 2 of 2; log: .*; stderr: broken"):
        pack.advance()
    pack.close()


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_study_has_the_same_trials_with_fewer_starts(client: StoreClient, tmp_path: Path, checkpoints: bool) -> None:
    told = []
    for reuse in (False, True):
        document = tiny(tmp_path, {"STARTS": str(tmp_path / f"starts-{reuse}")}).to_json()
        document["program"] |= {"reuse": reuse, "checkpoints": checkpoints}
        document["budget"] |= {} if checkpoints else {"asking": "asynchronous"}
        head, _, body = TINY.partition("t = trial.current(client_lr=0.1)\n")
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        count = 'open(os.environ["STARTS"], "a").write("x")\n'
        (tmp_path / "tiny.py").write_text(f"{head}{count}for t in trial.each(client_lr=0.1):\n{lines}")
        study = Study.from_json(document)
        study_id = client.submit(study)
        worker = OneWorker(client, study_id, study, tmp_path / str(reuse), slots=1)
        worker.run()
        worker.one.cleanup()
        told.append(facts(client, study_id))
    assert told[0] == told[1]
    assert len((tmp_path / "starts-True").read_text()) == 1
    assert len((tmp_path / "starts-False").read_text()) >= len(told[0])


class OneWorker(Bench):
    """A bench whose worker trains one pack after another, as Tune reuses it."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.one = Worker.__new__(Worker)

    def start(self) -> str | None:
        pack = self.search.next_job()
        if pack is None:
            return None
        self.one.take(pack.config())
        self.workers[pack.pack] = self.one
        return pack.pack
