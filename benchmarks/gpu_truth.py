"""All that is to be known of a GPU in one run of at most nine minutes: rates, launches, memory, roofline, drift, tests.

    python -m benchmarks.gpu_truth [--minutes 9] [--out gpu-truth] [--only mlp]
    python -m benchmarks.gpu_truth --device cpu --smoke       tries every part out, in seconds, without a GPU

Needs Python, numpy and torch; pytest, pytest-timeout, hypothesis and scikit-learn for the tests at the end alone. After
every row it writes OUT.json, and OUT.md with the same numbers as tables, so that a run that is cut off loses nothing.
What does not fit into the time is named under "not measured".

Rounds are those of benchmarks/engine.py: FedAvg, 10 of 100 clients, batches of 20, 5 steps, single precision. *torch*
is the plain loop of benchmarks/plain_loops.py with its data, draws and model on the device, one trial after another;
*torch.func* the same work for all trials at once, by vmap over trials and clients. A trial in an hour has 200 rounds.
How far curves drift is measured for `dtype: tf32` and `dtype: bfloat16`; all else is in exact single precision.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.engine import CASES, SMALL, Case, data, document, machine, texts, token_loss
from benchmarks.gpu import ROUNDS, accelerator, profiled
from benchmarks.plain_loops import BATCH, CLIENT_LR, CLIENTS, COHORT, EXAMPLES, STEPS, Pictures, Plain
from trainers.engine.evaluation.flops import gradient_flops
from trainers.engine.memory import ran_out
from trainers.engine.packs.pack import Pack
from trainers.engine.products import products_in
from trainers.trial.document import parse

MODELS = {case.name: case for case in (*CASES, *SMALL) if case.name in ("softmax", "mlp", "cnn", "transformer")}
WIDTHS = (1, 2, 8, 32, 128, 512)
FOR_TESTS = 0.3  # of the time, at most
_COLUMNS: dict[str, list[str]] = {
    "rates": ["model", "trials", "oracle", "trials_per_hour", "to_torch", "to_torch_func"],
    "evaluated": ["model", "trials", "trials_per_hour", "kernels", "reads"],
    "drift": ["model", "arithmetic", "trials_per_hour", "loss", "apart"],
}
_COLUMNS["rates"] += ["kernels", "reads", "busy", "peak_mib", "flops", "of_peak"]
_TITLES = {"rates": "Rounds", "evaluated": "Rounds with an evaluation each", "drift": "Other arithmetic"}


class Report:
    """The numbers so far, written to files after each change.

    Args:
        out: path of the files, without their endings.
        deadline: when the run must have ended, by time.monotonic.
        found: what is known at the start.
    """

    def __init__(self, out: Path, deadline: float, found: dict[str, Any]) -> None:
        self.out = out
        self.deadline = deadline
        self.found = {**found, "rates": [], "evaluated": [], "drift": [], "not_measured": []}
        self.write()

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def row(self, part: str, name: str, needs: float, measure: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """Measures a row if there is time; None if there is not, or if it fails, which is noted.

        Args:
            part: part of the report.
            name: of the row, where it was not measured.
            needs: seconds that must be left.
            measure: returns the row.
        """
        if self.left() < needs:
            self.note(f"{name}: no time")
            return None
        try:
            row = measure()
        except Exception as error:  # the rows that follow may still be measured
            said = "out of memory" if ran_out(error) else f"{type(error).__name__}: {str(error).splitlines()[0]}"
            self.note(f"{name}: {said}")
            return None
        self.found[part].append(row)
        self.write()
        return row

    def note(self, line: str) -> None:
        """Notes what was not measured."""
        self.found["not_measured"].append(line)
        self.write()

    def put(self, part: str, value: Any) -> None:
        """Writes a part."""
        self.found[part] = value
        self.write()

    def write(self) -> None:
        """Replaces both files."""
        for ending, text in ((".json", json.dumps(self.found, indent=1)), (".md", page(self.found))):
            path, new = self.out.with_suffix(ending), self.out.with_suffix(f"{ending}.new")
            new.write_text(text, encoding="utf-8")
            os.replace(new, path)


def page(found: dict[str, Any]) -> str:
    """The numbers as a page."""
    lines = [f"# {found['device']}", "", found["machine"], "", f"Begun {found['begun']}.", ""]
    for name, value in found.get("roofline", {}).items():
        lines.append(f"- {name}: {value}")
    for part, columns in _COLUMNS.items():
        if found[part]:
            lines += ["", f"## {_TITLES[part]}", "", _line(columns), "|---" * len(columns) + "|"]
            lines += [_line(_shown(row.get(column, "")) for column in columns) for row in found[part]]
    if "tests" in found:
        lines += ["", "## Tests", "", "```text", found["tests"], "```"]
    if found["not_measured"]:
        lines += ["", "## Not measured", "", *(f"- {line}" for line in found["not_measured"])]
    return "\n".join([*lines, ""])


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class OnDevice(Plain):
    """The plain loop with everything on a device, which it never waits for."""

    def batches(self, client: int) -> Iterator[Tensor]:
        """The rows of the client's steps, drawn on the device."""
        order = torch.randperm(EXAMPLES, device=self.server[0].device) + client * EXAMPLES
        return iter(order.split(BATCH))


class Functional:
    """FedAvg of several trials at once, by torch.func.

    Args:
        case: the model.
        width: number of trials.
        data: of the clients.
    """

    def __init__(self, case: Case, width: int, data: Pictures) -> None:
        self.data = data
        self.width = width
        self.device = data.inputs.device
        module = case.plain().to(self.device)
        self.server = {
            name: held.detach().expand(width, *held.shape).clone() for name, held in module.named_parameters()
        }

        def loss(tensors: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
            return self.data.loss(torch.func.functional_call(module, tensors, (inputs,)), targets)

        clients = torch.func.vmap(torch.func.grad(loss), in_dims=(0, 0, 0))
        self.gradients = torch.func.vmap(clients, in_dims=(0, None, None))

    def rounds(self, count: int) -> None:
        """Trains for some rounds."""
        for _ in range(count):
            chosen = torch.randperm(CLIENTS, device=self.device)[:COHORT]
            order = torch.rand(COHORT, EXAMPLES, device=self.device).argsort(1) + EXAMPLES * chosen[:, None]
            models = {name: held[:, None].repeat_interleave(COHORT, 1) for name, held in self.server.items()}
            for rows in order.split(BATCH, 1):
                slopes = self.gradients(models, self.data.inputs[rows], self.data.targets[rows])
                torch._foreach_add_(list(models.values()), [slopes[name] for name in models], alpha=-CLIENT_LR)
            self.server = {name: held.mean(1) for name, held in models.items()}


class Bench:
    """Everything that is measured on one device.

    Args:
        device: the device.
        folder: for data.
        seconds: of one measurement.
        repeats: of each measurement.
    """

    def __init__(self, device: torch.device, folder: Path, seconds: float, repeats: int) -> None:
        self.device = device
        self.seconds = seconds
        self.repeats = repeats
        self.path, *pictures = data(folder)
        windows = texts(self.path.with_suffix(""))
        self.pictures = self._held(*pictures, F.cross_entropy)
        self.windows = self._held(*windows, token_loss)

    def _held(self, inputs: Tensor, targets: Tensor, loss: Any) -> Pictures:
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        return Pictures(inputs, targets, inputs[:1], targets[:1], loss)

    def examples(self, case: Case) -> Pictures:
        """The data of the loops."""
        return self.windows if case.name == "transformer" else self.pictures

    def pack(self, case: Case, width: int, **changes: Any) -> Pack:
        """A pack of the engine."""
        wide = Case(case.model, width, 1, case.plain)
        return Pack.from_spec(parse({**document(wide, self.path), **changes}), device=str(self.device))

    def wait(self) -> None:
        """Until the device has done its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def round_seconds(self, train: Callable[[int], object]) -> float:
        """Seconds of a round, the median of some repeats."""
        train(1)
        self.wait()
        start = time.perf_counter()
        train(1)
        self.wait()
        rounds = max(1, min(100, round(self.seconds / (time.perf_counter() - start))))
        found = []
        for _ in range(self.repeats):
            start = time.perf_counter()
            train(rounds)
            self.wait()
            found.append((time.perf_counter() - start) / rounds)
        return statistics.median(found)

    def rate(self, case: Case, width: int, alone: float, peak: float) -> dict[str, Any]:
        """A pack, beside loops.

        Args:
            case: the model.
            width: number of trials.
            alone: trials in an hour of the plain loop.
            peak: operations in a second of the device's best product.
        """
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        pack = self.pack(case, width)
        seconds = self.round_seconds(pack.advance)
        flops = gradient_flops(pack._setting.model) * COHORT * STEPS * BATCH * width
        row = {
            "model": case.name,
            "trials": width,
            "oracle": pack.plan.oracle,
            "trials_per_hour": hourly(seconds, width),
            "to_torch": hourly(seconds, width) / alone,
            "flops": flops / seconds,
            "of_peak": flops / seconds / peak,
        }
        if cuda:
            row["peak_mib"] = torch.cuda.max_memory_allocated(self.device) >> 20
            row |= profiled(pack)
        try:
            functional = Functional(case, width, self.examples(case))
            row["to_torch_func"] = row["trials_per_hour"] / hourly(self.round_seconds(functional.rounds), width)
        except Exception as error:  # it may need more memory than the pack, or vmap may not take the module
            row["to_torch_func"] = "out of memory" if ran_out(error) else type(error).__name__
        return row

    def plain(self, case: Case) -> float:
        """Trials in an hour of the plain loop."""
        loop = OnDevice(case.plain().to(self.device), self.examples(case))
        return hourly(self.round_seconds(loop.rounds), 1)

    def evaluated(self, case: Case, width: int) -> dict[str, Any]:
        """A pack with an evaluation after each round, on 10 examples."""
        pack = self.pack(case, width, eval_every=1)
        row = {"model": case.name, "trials": width}
        row["trials_per_hour"] = hourly(self.round_seconds(pack.advance), width)
        return row | (profiled(pack) if self.device.type == "cuda" else {})

    def drift(self, case: Case, arithmetic: str, rounds: int) -> dict[str, Any]:
        """How far the training loss is from that of single precision, in shares of it, and what a round costs."""
        pack = self.pack(case, 8, dtype=arithmetic)
        lines = pack.advance(rounds)
        seconds = self.round_seconds(pack.advance)
        row = {"model": case.name, "arithmetic": arithmetic, "trials_per_hour": hourly(seconds, 8)}
        return row | {"loss": lines[-1]["train_loss"]}

    def roofline(self) -> dict[str, float]:
        """Operations in a second of a product of 4096 x 4096 by arithmetic, bytes in a second of a copy."""
        size = 4096 if self.device.type == "cuda" else 256
        found = {}
        for name in ("float32", "tf32", "bfloat16"):
            dtype = torch.bfloat16 if name == "bfloat16" else torch.float32
            left = torch.ones(size, size, dtype=dtype, device=self.device)
            with products_in(name, self.device):
                seconds = self.round_seconds(lambda count, left=left: [left @ left for _ in range(count)])
            found[f"{name}, FLOP/s"] = 2 * size**3 / seconds
        held = torch.empty(size * size * 4, device=self.device)
        into = torch.empty_like(held)
        seconds = self.round_seconds(lambda count: [into.copy_(held) for _ in range(count)])
        found["copies, bytes/s"] = 2 * held.numel() * held.element_size() / seconds
        one = torch.zeros(1, device=self.device)
        found["an operation on one number, s"] = self.round_seconds(lambda count: [one.add_(1) for _ in range(count)])
        return found


def hourly(seconds: float, width: int) -> float:
    """Trials in an hour."""
    return 3600 * width / ROUNDS / seconds


def measure(bench: Bench, report: Report, models: list[str], widths: tuple[int, ...], rounds: int) -> None:
    """All parts but the tests, the cheapest and most telling first.

    Args:
        bench: the device.
        report: gets the rows.
        models: names of the models.
        widths: of packs, from 1.
        rounds: after which arithmetics are compared.
    """
    report.put("roofline", bench.roofline())
    peak = report.found["roofline"]["float32, FLOP/s"]
    alone: dict[str, float] = {}
    for name in models:
        row = report.row("rates", f"torch {name}", 5, lambda name=name: {"model": name, "trials": "torch, alone"})
        if row is not None:
            alone[name] = row["trials_per_hour"] = bench.plain(MODELS[name])
            report.write()
    for width in (1, *sorted(widths[1:], reverse=True)):  # the widest and narrowest say most
        for name in alone:
            wanted = f"{name}, pack of {width}"
            report.row(
                "rates",
                wanted,
                10,
                lambda *_, name=name, width=width: bench.rate(MODELS[name], width, alone[name], peak),
            )
    for name in alone:
        for width in widths[:: len(widths) - 1]:
            wanted = f"{name}, evaluated pack of {width}"
            report.row("evaluated", wanted, 10, lambda *_, name=name, width=width: bench.evaluated(MODELS[name], width))
    for name in alone:
        exact: float | None = None
        for arithmetic in ("float32", "tf32", "bfloat16") if name != "softmax" else ():
            row = report.row(
                "drift",
                f"{name} in {arithmetic}",
                10,
                lambda *_, name=name, kind=arithmetic: bench.drift(MODELS[name], kind, rounds),
            )
            if row is not None:
                exact = row["loss"] if exact is None else exact
                row["apart"] = abs(row["loss"] - exact) / exact
                report.write()


def run_tests(report: Report) -> None:
    """Runs tests/gpu for what is left of the time."""
    missing = [
        name for name in ("pytest", "pytest_timeout", "hypothesis", "sklearn") if importlib.util.find_spec(name) is None
    ]
    if missing:
        report.note(f"tests: {', '.join(missing)} not installed")
        return
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "gpu",
        "tests/gpu",
        "-q",
        "--maxfail",
        "20",
        "-p",
        "no:cacheprovider",
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "output")
        with path.open("w") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
            while process.poll() is None:
                time.sleep(0.5)
                report.put("tests", path.read_text()[-4000:])
                if report.left() < 5:
                    process.terminate()
                    report.note("tests: cut off by the time")
                    break
        report.put("tests", path.read_text()[-4000:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=9.0, help="at most")
    parser.add_argument("--out", type=Path, default=Path("gpu-truth"), help="files, without their endings")
    parser.add_argument("--only", choices=sorted(MODELS), help="one model")
    parser.add_argument("--smoke", action="store_true", help="narrow packs and short measurements")
    options = parser.parse_args()
    torch.set_num_threads(1)
    deadline = time.monotonic() + 60 * options.minutes
    end = threading.Timer(60 * options.minutes, os._exit, (1,))  # of a measurement that takes longer than it should
    end.daemon = True
    end.start()
    facts = {"machine": machine(), "device": accelerator(options.device)}
    report = Report(options.out, deadline, {**facts, "begun": time.strftime("%Y-%m-%d %H:%M:%S %Z")})
    seconds, repeats, widths = (0.01, 1, (1, 2)) if options.smoke else (0.3, 3, WIDTHS)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(torch.device(options.device), Path(folder), seconds, repeats)
        report.deadline -= FOR_TESTS * 60 * options.minutes
        models = [options.only] if options.only else list(MODELS)
        with products_in("float32", bench.device):  # of torch's own loops, too
            measure(bench, report, models, widths, rounds=2 if options.smoke else 20)
    report.deadline = deadline
    run_tests(report)
    end.cancel()
    print(options.out.with_suffix(".md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
