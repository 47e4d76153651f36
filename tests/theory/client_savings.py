"""What mixed federated learning saves on clients if the server's loss is a regulariser of an embedding table.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", table 5, section 5.3 and
appendix C.3: next-movie recommendation with a table of `vocabulary_size` embeddings of `embedding_dim` numbers. Clients
take local_steps batches of batch_size examples and touch `movies` rows per round. The regulariser spreadout compares
all rows. Without mixing (the baseline) clients hold the whole table and compute spreadout in every step; with mixing
they hold only the rows that they touch, and the server computes spreadout. Operations are counted as in the paper, a
product as one operation; a number has 4 bytes, and 1 KB is 1024 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.errors import SpecError
from trainers.spelling import hint
from trainers.values import shown

NUMBER_BYTES = 4
MODELS_SENT = {"baseline": 2, "parallel_training": 2, "one_way_transfer": 3, "two_way_transfer": 3}
"""Number of models, or tables of a client's rows, sent down and up per round."""


@dataclass(frozen=True, kw_only=True)
class MovieRecommendation:
    """Sizes of the task.

    Args:
        vocabulary_size: rows of the table, N.
        embedding_dim: numbers of a row, d.
        movies: rows that a client touches per round, n.
        batch_size: examples of a local step, B.
        local_steps: K.
    """

    vocabulary_size: int = 3952
    embedding_dim: int = 16
    movies: int = 160
    batch_size: int = 16
    local_steps: int = 10

    def communication_bytes(self, method: str) -> int:
        """Bytes per client and round, down and up: 2 N d numbers, or 2 n d, or 3 n d with a transferred gradient.

        Args:
            method: "baseline" or one of the three mixed methods.

        Raises:
            SpecError: the method is unknown.
        """
        if method not in MODELS_SENT:
            raise SpecError(f"no overhead of method {shown(method)}: {hint(method, MODELS_SENT)}", "method.name")
        rows = self.vocabulary_size if method == "baseline" else self.movies
        return MODELS_SENT[method] * rows * self.embedding_dim * NUMBER_BYTES

    @property
    def recommendation_flops(self) -> int:
        """Operations of a local step without spreadout: B d + 3 B d^2 + 3 B^2 d + 2 B, forward and backward."""
        batch, dim = self.batch_size, self.embedding_dim
        return batch * dim + 3 * batch * dim**2 + 3 * batch**2 * dim + 2 * batch

    @property
    def spreadout_flops(self) -> int:
        """Operations of spreadout and its gradient: N^2 d / 2 forward and N d backward, as printed.

        With the local step this gives 125.03 million. The paper's total, 125.16 million, follows from N = 3954 or from
        3 N d.
        """
        size, dim = self.vocabulary_size, self.embedding_dim
        return size**2 * dim // 2 + size * dim

    def client_flops(self, method: str) -> int:
        """Operations of a client's local step.

        Args:
            method: as in `communication_bytes`.
        """
        self.communication_bytes(method)
        return self.recommendation_flops + (self.spreadout_flops if method == "baseline" else 0)

    def server_regularizer_flops(self, method: str) -> int:
        """Operations of spreadout on the server per round: N^2 d / 2 per central step; one-way transfer has one step.

        The paper's table also counts one step for parallel training and two-way transfer, which take local_steps.

        Args:
            method: as in `communication_bytes`; the server of the baseline computes none.
        """
        self.communication_bytes(method)
        each = self.vocabulary_size**2 * self.embedding_dim // 2
        return each * {"baseline": 0, "one_way_transfer": 1}.get(method, self.local_steps)

    @property
    def communication_saved(self) -> float:
        """Share of the baseline's bytes that the transfer methods save."""
        return 1 - self.communication_bytes("one_way_transfer") / self.communication_bytes("baseline")

    @property
    def compute_saved(self) -> float:
        """Share of the baseline's operations on a client that mixing saves."""
        return 1 - self.client_flops("one_way_transfer") / self.client_flops("baseline")
