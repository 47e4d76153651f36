"""What mixed federated learning sends and computes, from the counters of real rounds: table 5 and section 5.3 of [C].

    DATA_DIR=.. python -m benchmarks.overhead [--scale full]

Trains the labels of the preset c-fig5 (next movies, whose server has a loss without data) for two rounds, and prints a
Markdown table for docs/papers.md. All numbers are of one round, those of clients the mean of a cohort. Messages hold
whole models; the last column counts what the rows of the table that a client uses take in their place, as the paper
does. Clients that compute the server's loss use all rows (trainers/reports/item_rows.py).
"""

from __future__ import annotations

import argparse
from typing import Any

from driftline.study.papers import Scale, preset
from driftline.study.trial_document import trial_document
from trainers import Pack, parse

NAME, BASELINE, ROUNDS = "c-fig5", "on_client", 2
RATES: dict[str, Any] = {"client_lr": 0.5, "delta_lr": 1.0, "local_steps": 10}
HEADINGS = ("label", "client, Mflop", "server, Mflop", "client, KiB", "used rows, KiB")


def measured(scale: Scale, label: str) -> list[float]:
    """The numbers of a label in a round: operations of a client and of the server, and the bytes of a client twice.

    Args:
        scale: scale of the preset.
        label: label of its study.
    """
    study = preset(NAME).study_of(NAME, scale)
    document = trial_document(study, label, [RATES], study.seed)
    document |= {"rounds": ROUNDS, "eval_every": ROUNDS, "report": ["overhead", "item_rows"]}
    pack = Pack.from_spec(parse(document), device="cpu")
    line = pack.advance()[-1]
    work = pack.work
    clients = ROUNDS * work["clients_per_round"]
    sent = (line["bytes_down"] + line["bytes_up"]) / clients
    width = study.task["model"]["embedding"]
    numbers = line["item_rows"] * width + width * (width + 1)  # of the rows and the dense layer
    used = sent if label == BASELINE else sent * 4 * numbers / work["model_bytes"]
    return [line["client_flops"] / clients / 1e6, line["server_flops"] / ROUNDS / 1e6, sent / 1024, used / 1024]


def table(scale: Scale) -> str:
    """The Markdown table.

    Args:
        scale: scale of the preset.
    """
    study = preset(NAME).study_of(NAME, scale)
    rows = [[label, *(f"{number:.4g}" for number in measured(scale, label))] for label in study.labels]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEADINGS, ["---"] * len(HEADINGS), *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", choices=("small", "full"), default="small")
    print(table(parser.parse_args().scale))


if __name__ == "__main__":
    main()
