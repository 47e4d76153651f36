"""Command line of the theory: `python -m trainers.theory point | figure | counterexample | cusp`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from trainers.errors import SpecError

POINT_HELP = "rate and suboptimality of a setting, as JSON"
FIGURE_HELP = "data (CSV) and images (PNG, SVG) of a figure, or of all"
COUNTER_HELP = "evidence against a statement of the papers, as JSON lines"
CUSP_HELP = "landmarks of the MAML curve at a fixed client rate, as JSON"


def main(arguments: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: the arguments; None uses those of the command line.

    Returns:
        Exit code: 0, or 2 for invalid input (one line on standard error).
    """
    try:
        return run(arguments)
    except SpecError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; raises a SpecError for invalid input."""
    options = _parser().parse_args(arguments)
    return int(options.run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainers.theory", description="The theory of local update methods."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    point = commands.add_parser("point", help=POINT_HELP, description=POINT_HELP)
    _curvature_options(point)
    point.add_argument("--weights", required=True, help="gradient weights: 1:K, K (only step K) or a comma list")
    point.add_argument("--server", default="sgd", help="sgd, nesterov or heavy_ball, with its best parameters")
    point.set_defaults(run=_point)

    figure = commands.add_parser("figure", help=FIGURE_HELP, description=FIGURE_HELP)
    figure.add_argument("name", help="A1 to A5, A7 to A10, B1, or all")
    figure.add_argument("--out", type=Path, default=Path("out/figures"), help="folder to write to (%(default)s)")
    figure.set_defaults(run=_figure)

    counterexample = commands.add_parser("counterexample", help=COUNTER_HELP, description=COUNTER_HELP)
    counterexample.add_argument("name", help="lemma5, corollary22, prox, momentum, or all")
    counterexample.set_defaults(run=_counterexample)

    cusp = commands.add_parser("cusp", help=CUSP_HELP, description=CUSP_HELP)
    _curvature_options(cusp)
    cusp.set_defaults(run=_cusp)
    return parser


def _curvature_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mu", type=float, required=True, help="smallest curvature of all clients")
    parser.add_argument("--L", type=float, required=True, help="largest curvature of all clients")
    parser.add_argument("--prox", type=float, default=0.0, help="proximal strength (%(default)s is none)")
    parser.add_argument("--client-lr", type=float, required=True, help="client rate; 0 is large-batch SGD")


def _point(options: argparse.Namespace) -> int:
    from trainers.theory.interval import Curvature
    from trainers.theory.tradeoff import tradeoff_point
    from trainers.theory.weights import as_weights

    curvature = Curvature(options.mu, options.L)
    point = tradeoff_point(curvature, options.client_lr, as_weights(options.weights), options.server, options.prox)
    for message in point.messages:
        print(f"warning: {message}", file=sys.stderr)
    _print(
        {
            "kappa": point.condition_number,
            "rho": point.rate,
            "delta": point.suboptimality,
            "log_kappa": point.log_condition_number,
            "warnings": list(point.messages),
        }
    )
    return 0


def _cusp(options: argparse.Namespace) -> int:
    from trainers.theory.cusp import cusp
    from trainers.theory.interval import Curvature

    at = cusp(Curvature(options.mu, options.L), options.client_lr, options.prox)
    _print(
        {
            "leaves_at": at.leaves_at,
            "cusp_at": at.cusp_at,
            "last_phase_at": at.last_phase_at,
            "kappa": math.exp(at.log_condition_number),
            "delta": at.suboptimality,
        }
    )
    return 0


def _figure(options: argparse.Namespace) -> int:
    from trainers.theory.figures.files import write
    from trainers.theory.figures.paper_figures import FIGURES

    for name in _chosen(options.name.upper() if options.name != "all" else "all", list(FIGURES), "figure"):
        for path in write(FIGURES[name](), options.out):
            print(path)
    return 0


def _counterexample(options: argparse.Namespace) -> int:
    from trainers.theory.counterexamples import COUNTEREXAMPLES

    for name in _chosen(options.name, list(COUNTEREXAMPLES), "counterexample"):
        entry = COUNTEREXAMPLES[name]
        print(f"{name}: {entry.statement}\n  what holds: {entry.finding}")
        for row in entry.rows():
            print("  " + json.dumps(row))
    return 0


def _chosen(name: str, names: list[str], what: str) -> list[str]:
    if name == "all":
        return names
    if name not in names:
        raise SpecError(f"{what} must be one of {', '.join(names)} or all, got {name}")
    return [name]


def _print(values: dict[str, float | list[str]]) -> None:
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()
    }
    print(json.dumps(finite))


if __name__ == "__main__":
    sys.exit(main())
