"""FedAvg by Driftline, in the project's own environment, asked by `benchmarks/peer_rounds.py`."""

import sys
from pathlib import Path

from answering import answer
from round_task import save

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.peer_rounds import driftline_pack, parameters


class Peer:
    """A training that goes on."""

    def __init__(self, folder: str, model: str, trials: int = 1) -> None:
        self.pack = driftline_pack(Path(folder), model, trials)

    def rounds(self, count: int) -> None:
        self.pack.advance(count)

    def parameters(self, path: str) -> None:
        save(path, parameters(self.pack))


def main() -> None:
    answer(Peer)


if __name__ == "__main__":
    main()
