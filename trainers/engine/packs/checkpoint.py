r"""Checkpoints as bytes: a header with a checksum, and a payload of tensors and plain types only.

16 bytes  magic        "DRIFTLINE-PACK\n\0"
 4 bytes  version      unsigned, little-endian
32 bytes  sha256       of the payload
          payload      torch.save, loadable with weights_only: a list with a dict for each member

A checkpoint consists of its members' checkpoints. `members` splits it, and `joined` combines members of several packs,
so that a pack can continue with some of its members, or with members of other packs.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainers.errors import CheckpointError
from trainers.trial.document import TrialSpec, structure_of
from trainers.trial.members import own_document
from trainers.values import shown

VERSION = 3
_MAGIC = b"DRIFTLINE-PACK\n\0"
_HEADER = struct.Struct(f"<{len(_MAGIC)}sI32s")
_FREE = (
    "rounds",
    "report",
    "eval_every",
    "adaptation",
    "evaluation",
)  # may differ between a checkpoint and the trial that continues it
_SHARED = {
    "structure": "of the same structure",
    "round": "at the same round",
    "opened": "all before the lines of round 0 or all after them",
    "plan": "under the same plan",
}


def members(data: bytes) -> list[bytes]:
    """The checkpoints of the single members of a checkpoint, in order.

    Args:
        data: from `Pack.to_bytes` or `joined`.

    Raises:
        CheckpointError: the checkpoint cannot be read (`from_bytes`).
    """
    return [to_bytes([member]) for member in from_bytes(data)]


def joined(parts: Sequence[bytes]) -> bytes:
    """One checkpoint of several members, in the given order; `Pack.restore` continues all of them.

    Args:
        parts: checkpoints of one member or several, of the same structure, plan and round.

    Raises:
        CheckpointError: a part cannot be read (`from_bytes`), or the parts do not fit together.
    """
    contents = [member for data in parts for member in from_bytes(data)]
    if not contents:
        raise CheckpointError("a checkpoint must be joined from at least one, got none")
    for number, member in enumerate(contents):
        for key, rule in _SHARED.items():
            if member[key] != contents[0][key]:
                raise CheckpointError(
                    f"members joined to a checkpoint must be {rule}, got {_given(key, contents[0], member)} for member "
                    f"0 and {_given(key, member, contents[0])} for member {number}"
                )
    if len(contents) > contents[0]["plan"]["width"]:
        raise CheckpointError(
            f"members joined to a checkpoint must be at most {contents[0]['plan']['width']}, the width of their plan, "
            f"got {len(contents)}: join fewer"
        )
    return to_bytes(contents)


def to_bytes(contents: Sequence[Mapping[str, Any]]) -> bytes:
    """The checkpoint of some members.

    Args:
        contents: for each member tensors, numbers, strings, and dicts and lists of these. Tensors must not be views:
            their whole memory would be written.
    """
    buffer = io.BytesIO()
    buffer.write(bytes(_HEADER.size))
    torch.save([dict(member) for member in contents], buffer)
    with buffer.getbuffer() as whole:  # client states may be large: no copies
        digest = hashlib.sha256(whole[_HEADER.size :]).digest()
        _HEADER.pack_into(whole, 0, _MAGIC, VERSION, digest)
    return buffer.getvalue()


def from_bytes(data: bytes) -> list[dict[str, Any]]:
    """The contents of a checkpoint, one dict per member.

    Args:
        data: from `to_bytes` or `joined`.

    Returns:
        One dict per member, with tensors on the CPU.

    Raises:
        CheckpointError: the bytes are no checkpoint, are damaged, or have another version.
    """
    if len(data) < _HEADER.size:
        raise CheckpointError(f"a checkpoint must have a header of {_HEADER.size} bytes, got {len(data)} bytes")
    magic, version, digest = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CheckpointError(f"a checkpoint must begin with {_MAGIC!r}, got {magic!r}: this is another kind of file")
    if version != VERSION:
        raise CheckpointError(f"the checkpoint must be of version {VERSION}, got {version}: train the trial again")
    body = data[_HEADER.size :]
    if hashlib.sha256(body).digest() != digest:
        raise CheckpointError("the checkpoint is damaged, its checksum does not fit: use an older one")
    contents: list[dict[str, Any]] = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    return contents


def fingerprints(spec: TrialSpec) -> list[str]:
    """For each member, the hash of all that must be equal for it to continue: its trial without rounds and reports.

    Args:
        spec: one trial or several.
    """
    task = _digest(spec.canonical["task"])  # may be large: hashed once for all members
    return [_digest({**own_document(spec.canonical, member), "task": task}) for member in range(spec.members)]


def structure(spec: TrialSpec) -> str:
    """The hash of all that must be equal for members to be joined: `structure_of` without rounds and reports.

    Args:
        spec: one trial or several.
    """
    return _digest(structure_of(spec))


def _digest(document: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in document.items() if key not in _FREE}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _given(key: str, member: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The values of a member that differ from another member's, as an error shows them."""
    values, other_values = member[key], other[key]
    if key == "plan":
        return ", ".join(f"{name}={shown(value)}" for name, value in values.items() if value != other_values.get(name))
    return f"{key}={shown(values[:8] if key == 'structure' else values)}"
