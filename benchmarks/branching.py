"""What branching saves: studies of plateau's settings, whose trials share their trunks, beside each trial alone.

    OMP_NUM_THREADS=1 python -m benchmarks.branching [--seeds 10] [--repeats 5] [--only NAME]

Each study is a search of 4 trunks with 16 settings of the plateau schedule each. The configurations are those that a
study proposes with the quasi-random sampler; they are trained in this process without Ray. Per study a line with:

* the client gradients that were computed, relative to those of all trials trained alone (exact, of all trunks): the
  mean over studies with different seeds, its 95 % interval, and the smallest and largest
* the share of trials whose rates decayed at all
* processor time of the first trunk's pack, relative to each of its trials alone under the same plan, and to the pack of
  a study without branches, where trials share matrix products; median, smallest and largest ratio of the repeats

The three are trained one after the other in each repeat, and every pack is built before its time is taken.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import torch
from scipy.stats import t

from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from service.driver.search.actions import Ask, SearchPlan
from service.driver.search.proposals import Proposals
from service.driver.search.state import StudyTable
from service.driver.search.study_plan import decided
from service.samplers.build import build
from trainers import Pack, Plan, parse

BRANCHES, TRUNKS = 16, 4
RATES = ("client_lr", "server_lr")
DIGITS = {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}}
DECAYS = {"client_decay": {"choice": [0.1, 0.5]}, "server_decay": {"choice": [0.5, 0.9]}}


@dataclass(frozen=True)
class Case:
    """A study of plateau's settings.

    Attributes:
        name: What is special about it.
        task: Its task.
        window: Range of the window; patience and cooldown follow it.
        rounds: Rounds of a trial.
        clients: Clients of a round; None takes all.
    """

    name: str
    task: Mapping[str, Any]
    window: tuple[int, int]
    rounds: int
    clients: int | None = 10


CASES = (
    Case("softmax, window 5 to 40", DIGITS, (5, 40), 100),
    Case("softmax, window 5 to 25", DIGITS, (5, 25), 100),
    Case("softmax, window 5 to 40, all clients", DIGITS, (5, 40), 100, None),
    Case("softmax, window 5 to 100, 200 rounds", DIGITS, (5, 100), 200),
    Case("MLP, window 5 to 40", {**DIGITS, "model": {"name": "mlp", "hidden": [32]}}, (5, 40), 100),
)


def packs(case: Case, seed: int) -> list[list[dict[str, Any]]]:
    """For each trunk of a study with this seed, the documents of its trials."""
    window = {"int": list(case.window), "log": True}
    rates = {"client_lr": {"float": [0.03, 0.3], "log": True}, "server_lr": {"float": [0.03, 0.3], "log": True}}
    entry = {
        "name": "fedavg",
        "space": {**rates, "local_steps": 10},
        "schedule": {"name": "plateau", "space": {"window": window, **DECAYS}},
    }
    count = BRANCHES * TRUNKS
    study = Study.from_json(
        {
            "name": "branching",
            "task": case.task,
            "methods": [entry],
            "objective": {"quality": "test_loss"},
            "budget": {"trials_per_method": count, "rounds": case.rounds, "branches": BRANCHES, "seeds": 0},
            "sampler": "quasi_random",
            "clients_per_round": case.clients,
            "batch_size": 20,
            "seed": seed,
        }
    )
    plan = decided(study.budget, study.resources, study.leading_sampler)
    asked = Proposals(study, plan, StudyTable(), build).ask(
        Ask("fedavg", 0, count), SearchPlan.of(study.labels, study.budget, plan)
    )
    return [
        [trial_document(study, "fedavg", [one], study.seed) for one in asked[first : first + BRANCHES]]
        for first in range(0, count, BRANCHES)
    ]


def joined(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document of a pack of these trials."""
    return {**documents[0], "members": [member for document in documents for member in document["members"]]}


def trained(documents: Sequence[Mapping[str, Any]], plan: Plan | None) -> tuple[float, list[dict[str, Any]]]:
    """(processor time, lines) of trials in one pack."""
    pack = Pack.from_spec(parse(joined(documents)), plan=plan)
    began = time.process_time()
    lines = pack.advance()
    return time.process_time() - began, lines


def counts(lines: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    """Client gradients of a pack, computed and counted; and its trials whose rates decayed."""
    first = {line["member"]: line for line in reversed(lines)}
    last = {line["member"]: line for line in lines}
    counted = sum(line["client_gradients"] for line in last.values())
    decayed = sum(any(last[one][rate] < line[rate] for rate in RATES) for one, line in first.items())
    return counted - sum(line["shared_gradients"] for line in last.values()), counted, decayed


def measure(case: Case, seeds: int, repeats: int) -> str:
    """The line of a study."""
    studies = [packs(case, seed) for seed in range(seeds)]
    first = studies[0][0]
    together = Pack.from_spec(parse(joined(first))).plan
    own = replace(together, separate=True)
    each = np.array([[counts(trained(trunk, own)[1]) for trunk in trunks] for trunks in studies]).sum(axis=1)
    ratios: dict[str, list[float]] = {"alone": [], "products": []}
    for _ in range(repeats):
        shared = trained(first, own)[0]
        ratios["alone"].append(shared / sum(trained([document], own)[0] for document in first))
        ratios["products"].append(shared / trained(first, together)[0])
    shares = 100 * each[:, 0] / each[:, 1]
    half = float(t.ppf(0.975, seeds - 1)) * shares.std(ddof=1) / math.sqrt(seeds) if seeds > 1 else math.nan
    computed = f"{shares.mean():.1f} ± {half:.1f} % ({shares.min():.0f} to {shares.max():.0f} %)"
    cells = [
        f"{median(found):.0%} ({min(found):.0%} to {max(found):.0%})" if found else "" for found in ratios.values()
    ]
    return " | ".join([case.name, computed, f"{each[:, 2].mean() / (BRANCHES * TRUNKS):.0%}", *cells])


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description="What branching saves.")
    parser.add_argument("--seeds", type=int, default=10, help="studies whose gradients are counted")
    parser.add_argument("--repeats", type=int, default=5, help="repeats in which the first trunk is timed")
    parser.add_argument("--only", help="name of one study")
    given = parser.parse_args()
    torch.set_num_threads(1)
    heads = (
        "study",
        "gradients computed",
        "trials that decayed",
        "CPU, to each alone",
        "CPU, to packs without branches",
    )
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for case in CASES:
        if given.only in (None, case.name):
            print(f"| {measure(case, given.seeds, given.repeats)} |", flush=True)


if __name__ == "__main__":
    main()
