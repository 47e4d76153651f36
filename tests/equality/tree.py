"""Everything that depends on a tree's own layout and vocabulary. Nothing else in this folder imports a tree.

    PYTHONPATH=TREE python -P tree.py TREE      reads a request in JSON a line, answers each with a line of JSON

    {"do": "train", "document": ..., "oracle": ..., "stop": ...}    {"lines": [...]} or {"error": "..."}
    {"do": "check", "documents": [...]}                             {"errors": [null or "...", ...]}
    {"do": "study", "document": ...}                                {"document": ...}
    {"do": "about"}                                                 {"renamed": {...}, "torch": ..., ...}

Documents come in the spelling of version 0.1. A tree with another spelling translates them itself: see `_spelling`.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import sys
import warnings
from pathlib import Path
from typing import Any

SPELLING = "driftline.study.version_0_1"
"""The module in which a newer tree says how 0.1 spelled things. It must have:

    trial(document) -> document     a trial document of 0.1 in the tree's own spelling
    study(document) -> document     a study of 0.1, the same way
    RENAMED: dict[str, str]         keys of report lines, results and API answers, and names of oracles: old -> new

and, for what finished studies left, `frontier(document)` and `hyperparameters(method, values)`.
"""
_BY_EXAMPLES = (
    "all_on_client",
    "fednova",
    "one_way_transfer",
    "parallel_training",
    "pooled_training",
    "two_way_transfer",
)
COMMAND = ("-m", "service.cli")
"""What follows `python` to reach the command line of a tree."""


def _spelling() -> Any:
    """The tree's module `SPELLING`; None in a tree that still spells as 0.1 does."""
    try:
        spec = importlib.util.find_spec(SPELLING)
    except ModuleNotFoundError:  # driftline is a single module in 0.1
        return None
    return None if spec is None else importlib.import_module(SPELLING)


def trial(document: dict[str, Any]) -> dict[str, Any]:
    """A trial document of 0.1 in the spelling of the tree."""
    spelling, document = _spelling(), _weighted(document, [document["method"]])
    return document if spelling is None else spelling.trial(document)


def study(document: dict[str, Any]) -> dict[str, Any]:
    """A study of 0.1 in the spelling of the tree."""
    spelling, document = _spelling(), _weighted(document, document["methods"])
    return document if spelling is None else spelling.study(document)


def _weighted(document: dict[str, Any], methods: list[dict[str, Any]]) -> dict[str, Any]:
    """The document with the weighting that was the default of its methods in 0.1; now it is the task's."""
    by_examples = document["task"]["name"] != "quadratic" and all(one["name"] in _BY_EXAMPLES for one in methods)
    return {"weighting": "examples" if by_examples else "uniform", **document}


def results(recorded: dict[str, Any]) -> dict[str, Any]:
    """What studies.py recorded of a study, in the spelling of the tree; nothing changes where that is its spelling.

    0.1 did not count deaths of workers, had no plans with `separate`, and a search trial did not name its own number as
    its configuration.

    Args:
        recorded: with the keys api, frontier.json and trials.csv.
    """
    spelling = _spelling()
    if spelling is None:
        return recorded
    api = dict(recorded["api"])
    methods = {entry["label"]: entry["name"] for entry in api["study"]["spec"]["methods"]}
    tuned = {name for trial in api["trials"]["trials"] for name in trial["hyperparameters"]}
    api["study"] = _with_spec(api["study"])
    api["studies"] = {**api["studies"], "studies": [_with_spec(study) for study in api["studies"]["studies"]]}
    api["trials"] = {**api["trials"], "trials": [_trial(trial, methods) for trial in api["trials"]["trials"]]}
    api["frontier"] = _frontier(api["frontier"], methods)
    names = {name for trial in api["trials"]["trials"] for name in trial["hyperparameters"]}
    rows = {}
    for trial, row in recorded["trials.csv"].items():
        values = {name: value for name, value in row.items() if name in tuned and value != ""}
        rows[trial] = {
            **_numbered({name: value for name, value in row.items() if name not in tuned}),
            **dict.fromkeys(names, ""),
            **spelling.hyperparameters(methods[row["label"]], values),
        }
    return {"api": api, "frontier.json": _frontier(recorded["frontier.json"], methods), "trials.csv": rows}


def _with_spec(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "spec": study(record["spec"])}


def _trial(record: dict[str, Any], methods: dict[str, str]) -> dict[str, Any]:
    values = _spelling().hyperparameters(methods[record["label"]], record["hyperparameters"])
    plan = record["plan"] and {"separate": False, **record["plan"]}
    return {"deaths": 0, "death_round": None, **_numbered(record), "hyperparameters": values, "plan": plan}


def _numbered(record: dict[str, Any]) -> dict[str, Any]:
    """A trial, or its row of trials.csv, with the number of its configuration."""
    key = "setting" if "setting" in record else "configuration"
    return {**record, key: record["number"]} if record[key] in (None, "") else record


def _frontier(document: dict[str, Any], methods: dict[str, str]) -> dict[str, Any]:
    spelling = _spelling()
    found = spelling.frontier(document)
    for label, result in found["methods"].items():
        for item in (*result["points"], *result["configurations"]):
            item["hyperparameters"] = spelling.hyperparameters(methods[label], item["hyperparameters"])
    return dict(found)


def renamed() -> dict[str, str]:
    """Keys of 0.1 that have another name in the tree."""
    spelling = _spelling()
    return {} if spelling is None else dict(spelling.RENAMED)


def _engine() -> Any:
    """What has `parse`, `Pack` and `Plan`: the package itself, or the modules of 0.1."""
    import trainers

    if hasattr(trainers, "Pack"):
        return trainers
    from importlib import import_module
    from types import SimpleNamespace

    pack, plan, spec = (import_module(f"trainers.{name}") for name in ("engine.pack", "engine.plan", "spec"))
    return SimpleNamespace(Pack=pack.Pack, Plan=plan.Plan, parse=spec.parse)


def check(document: dict[str, Any]) -> str | None:
    """Why the tree refuses a trial document of 0.1; None where it takes it."""
    from trainers.errors import SpecError

    try:
        _engine().parse(trial(document))
    except SpecError as error:
        return str(error)
    return None


def train(document: dict[str, Any], oracle: str | None, stop: int | None) -> list[dict[str, Any]]:
    """The report lines of a trial document of 0.1, on the CPU with one thread.

    Args:
        document: with an `eval_every` that is a number, unless oracle is None.
        oracle: computes the gradients; None leaves the plan to the tree, for models that have one oracle alone.
        stop: round after which the pack is written to a checkpoint and goes on from there; None never stops.
    """
    engine = _engine()
    spec = engine.parse(trial(document))
    plan = None
    if oracle is not None:
        plan = engine.Plan(
            oracle=renamed().get(oracle, oracle),
            width=spec.members,
            threads=1,
            device="cpu",
            dtype=spec.dtype,
            eval_every=int(spec.eval_every),
        )
    pack = engine.Pack.from_spec(spec, device="cpu", plan=plan)
    lines = pack.advance(stop)
    while not pack.done:
        pack = engine.Pack.restore(spec, pack.to_bytes(), device="cpu")
        lines += pack.advance()
    return lines


def about(tree: Path) -> dict[str, Any]:
    """What a recording depends on besides the code."""
    import numpy
    import torch

    import trainers

    package = Path(trainers.__file__).resolve()
    if not package.is_relative_to(tree.resolve()):
        raise SystemExit(f"PYTHONPATH must begin with the tree {tree}, but trainers comes from {package.parent}")
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    cpu = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    model = (cpu.get("vendor_id"), cpu.get("cpu family"), cpu.get("model"), cpu.get("model name"))
    return {
        "renamed": renamed(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "processor": " ".join(word for word in model if word) or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def answer(request: dict[str, Any], tree: Path) -> dict[str, Any]:
    """The answer to one request; an error of the tree is an answer too."""
    match request["do"]:
        case "about":
            return about(tree)
        case "study":
            return {"document": study(request["document"])}
        case "check":
            return {"errors": [check(document) for document in request["documents"]]}
    try:
        return {"lines": train(request["document"], request["oracle"], request["stop"])}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answers requests until there are no more."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tree = Path(sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), tree)), file=answers, flush=True)


if __name__ == "__main__":
    main()
