"""Runs a Flower program in this process, message by message: Flower's own simulation starts a Ray, which takes long.

``python flower_in_process.py train.py``, with the Python of an environment that has flwr.
"""

import runpy
import sys

import flwr.simulation
from flwr.app import Context, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


def context(number, **config):
    return Context(run_id=1, node_id=number, node_config=config, state=RecordDict(), run_config={})


class OneProcess(Grid):
    """Clients are called one after the other."""

    def __init__(self, client, clients):
        self._client = client
        self._contexts = {100 + n: context(100 + n, **{"partition-id": n}) for n in range(clients)}

    def send_and_receive(self, messages, *, timeout=None):
        return [self._client(message, self._contexts[message.metadata.dst_node_id]) for message in messages]

    def get_node_ids(self):
        return list(self._contexts)

    def create_message(self, *given, **named):
        raise NotImplementedError

    push_messages = pull_messages = set_run = create_message
    run = None


def run_simulation(server, client, clients, backend_config):
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    server(OneProcess(client, clients), context(0))


if __name__ == "__main__":
    flwr.simulation.run_simulation = run_simulation
    runpy.run_path(sys.argv[1], run_name="__main__")
