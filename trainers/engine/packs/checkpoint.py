r"""Checkpoints as bytes: a header that shows damage, and a payload of tensors and plain types only.

16 bytes  magic        "DRIFTLINE-PACK\n\0"
 4 bytes  version      unsigned, little-endian
32 bytes  sha256       of the payload
          payload      torch.save, loadable with weights_only
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import torch

from trainers.errors import CheckpointError

VERSION = 2
_MAGIC = b"DRIFTLINE-PACK\n\0"
_HEADER = struct.Struct(f"<{len(_MAGIC)}sI32s")
_FREE = (
    "rounds",
    "report",
    "eval_every",
    "adaptation",
)  # may differ between a checkpoint and the trial that continues it


def to_bytes(payload: Mapping[str, Any]) -> bytes:
    """The checkpoint of a payload.

    Args:
        payload: tensors, numbers, texts, and dicts and lists of these.
    """
    buffer = io.BytesIO()
    buffer.write(bytes(_HEADER.size))
    torch.save(dict(payload), buffer)
    with buffer.getbuffer() as whole:  # what clients keep may be large: no copies
        digest = hashlib.sha256(whole[_HEADER.size :]).digest()
        _HEADER.pack_into(whole, 0, _MAGIC, VERSION, digest)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    """The payload of a checkpoint.

    Args:
        data: from `to_bytes`.

    Returns:
        Tensors are on the CPU.

    Raises:
        CheckpointError: not a checkpoint, damaged, or of a version that this program does not know.
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
    payload: dict[str, Any] = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    return payload


def fingerprint(canonical: Mapping[str, Any]) -> str:
    """What must be equal for a trial to continue from a checkpoint: all but its length and what it reports.

    Args:
        canonical: the trial document with all defaults filled in.
    """
    kept = {key: value for key, value in canonical.items() if key not in _FREE}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
