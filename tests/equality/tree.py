"""Everything that depends on a tree's own layout. Nothing else in this folder imports a tree.

PYTHONPATH=TREE python -P tree.py TREE      reads a request in JSON a line, answers each with a line of JSON

{"do": "train", "document": ..., "oracle": ..., "stop": ...}    {"lines": [...]} or {"error": "..."}
{"do": "about"}                                                 {"torch": ..., ...}
"""

import json
import platform
import sys
import warnings
from pathlib import Path
from typing import Any


def train(document: dict[str, Any], oracle: str | None, stop: int | None) -> list[dict[str, Any]]:
    """The report lines of a trial document, on the CPU with one thread.

    Args:
        document: with an `eval_every` that is a number, unless oracle is None.
        oracle: computes the gradients; None leaves the plan to the tree, for models that have one oracle alone.
        stop: round after which the pack is written to a checkpoint and goes on from there; None never stops.
    """
    from trainers import Pack, Plan, parse

    spec = parse(document)
    plan = None
    if oracle is not None:
        plan = Plan(
            oracle=oracle,
            width=spec.members,
            threads=1,
            device="cpu",
            dtype=spec.dtype,
            eval_every=int(spec.eval_every),
        )
    pack = Pack.from_spec(spec, device="cpu", plan=plan)
    lines = pack.advance(stop)
    while not pack.done:
        pack = Pack.restore(spec, pack.to_bytes(), device="cpu")
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
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "processor": " ".join(word for word in model if word) or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def answer(request: dict[str, Any], tree: Path) -> dict[str, Any]:
    """The answer to one request; an error of the tree is an answer too."""
    if request["do"] == "about":
        return about(tree)
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
