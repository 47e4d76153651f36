"""Errors of trainers.

TrainerError
├── SpecError            the trial document is invalid (also a ValueError); says where by a dotted path
│   ├── MissingDataError the document is valid, but its data is not on this machine
│   ├── ChangedDataError the data at a URL do not have the document's checksum
│   └── TooLargeError    the trials of the pack are too many for one machine; fewer may fit
├── CheckpointError      a checkpoint is damaged, too new, or of another trial
└── PluginError           a plug-in breaks the contract of its kind
"""

from __future__ import annotations


class TrainerError(Exception):
    """Base class of all errors of trainers."""


class SpecError(TrainerError, ValueError):
    """An invalid trial document: one line with the rule, the given value and what to do.

    Args:
        message: the whole line, beginning with the path if there is one.
        path: dotted path in the document, such as "method.client_lr" or "members.3.client_lr"; "" is the document.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(" ".join(message.split()))
        self.path = path


class MissingDataError(SpecError):
    """The data of a task is not on this machine; the message says what to install or where to put it."""


class ChangedDataError(SpecError):
    """The data at a URL do not have the checksum of the document; trying again does not help."""


class TooLargeError(SpecError):
    """The trials of a pack need more memory than this machine, or any machine, has; fewer trials may fit."""


class CheckpointError(TrainerError):
    """A checkpoint that cannot be continued: wrong checksum, version or trial."""


class PluginError(TrainerError, TypeError):
    """A plug-in that breaks the contract of its kind: one line that begins with its file."""
