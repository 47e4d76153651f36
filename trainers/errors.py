"""What can go wrong in a trainer.

TrainerError
├── SpecError            the trial document is wrong (also a ValueError); says where by a dotted path
│   └── MissingDataError the document is right, but the data it asks for is not on this machine
├── CheckpointError      a checkpoint is damaged, too new, or of another trial
└── PluginError           a plug-in breaks the contract of its kind
"""

from __future__ import annotations


class TrainerError(Exception):
    """Anything a trainer refuses to do."""


class SpecError(TrainerError, ValueError):
    """A wrong trial document: one line that says what must hold, what came and what to do.

    Args:
        message: the whole line, beginning with the path where there is one.
        path: dotted place in the document, as "method.client_lr" or "members.3.client_lr"; "" is the document itself.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(" ".join(message.split()))
        self.path = path


class MissingDataError(SpecError):
    """The data of a task is not on this machine; the message says what to install or where to put it."""


class CheckpointError(TrainerError):
    """A checkpoint that cannot be continued from: wrong checksum, version or trial."""


class PluginError(TrainerError, TypeError):
    """A plug-in that breaks the contract of its kind: one line that begins with its file."""
