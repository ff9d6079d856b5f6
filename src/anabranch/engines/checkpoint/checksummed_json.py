"""JSON documents with a checksum, so that damage is noticed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from anabranch.errors import StateError, Subject


def seal(content: Mapping[str, Any]) -> bytes:
    r"""Return a document as the bytes of a file.

    Example:
        >>> seal({"n": 1})
        b'{"crc": "d44b3b7e", "content": {"n":1}}\n'
        >>> unseal(seal({"n": 1}), "example.json")
        {'n': 1}
    """
    body = _canonical(content)
    return b'{"crc": "%08x", "content": %s}\n' % (zlib.crc32(body), body)


def unseal(data: bytes, name: str) -> dict[str, Any]:
    """Return the document in a file; raises StateError with the file's name when it is damaged."""
    try:
        document = json.loads(data)
    except ValueError as error:
        raise damaged(name, f"no JSON ({error}) in {len(data)} bytes") from error
    content = document.get("content") if isinstance(document, dict) else None
    if not isinstance(content, dict):
        raise damaged(name, "JSON of another kind")
    if f"{zlib.crc32(_canonical(content)):08x}" != document.get("crc"):
        raise damaged(name, "contents that do not fit their checksum")
    return content


def damaged(name: str, found: str) -> StateError:
    """Return the error for a file that is not what was written."""
    return StateError(
        Subject("checkpoint file", name),
        "the file as it was written",
        found,
        "put the file back from a copy, or go on from an earlier version",
    )


def _canonical(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")
