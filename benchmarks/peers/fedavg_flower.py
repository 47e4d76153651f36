"""FedAvg by Flower's simulation, asked by `benchmarks/peer_rounds.py`. Flower samples the nodes, the message says whose
data a node trains on, since all peers train on the same cohorts.
"""

from collections.abc import Iterable

from answering import answer
from fedavg_flower_client import app as client_app
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from round_task import CLIENTS, COHORT, RoundTask, save

ACTORS = 2


class Strategy(FedAvg):
    """FedAvg whose cohorts are given."""

    def __init__(self, folder: str, model: str) -> None:
        super().__init__(fraction_train=COHORT / CLIENTS, fraction_evaluate=0.0, min_train_nodes=COHORT)
        self.where = {"folder": folder, "model": model}
        self.done = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = []
        for place, message in enumerate(super().configure_train(server_round, arrays, config, grid)):
            own = ConfigRecord({**self.where, "round": self.done, "place": place})
            content = RecordDict({"arrays": arrays, "place": own})
            messages.append(
                Message(content, dst_node_id=message.metadata.dst_node_id, message_type=message.metadata.message_type)
            )
        self.done += 1
        return messages


class Peer:
    """A training that goes on."""

    def __init__(self, grid: Grid, folder: str, model: str) -> None:
        self.grid = grid
        self.strategy = Strategy(folder, model)
        self.arrays = ArrayRecord(RoundTask(folder, model).module().state_dict())

    def rounds(self, count: int) -> None:
        self.arrays = self.strategy.start(self.grid, self.arrays, num_rounds=count).arrays

    def parameters(self, path: str) -> None:
        save(path, self.arrays.to_torch_state_dict().values())


server_app = ServerApp()


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    answer(lambda folder, model: Peer(grid, folder, model))


def main() -> None:
    resources = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(
        server_app,
        client_app,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": resources, "init_args": {"num_cpus": ACTORS}},
    )


if __name__ == "__main__":
    main()
