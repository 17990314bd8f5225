"""A digest of a model's weights, computed while other things happen.

Input: a model whose weights are final. Output: their digest, when asked for. Invariant: the digest covers every byte
of every tensor in the order of the graphs. Hashing lets other threads run, but each return from it waits for the
interpreter: small tensors are joined into one piece, so that there are as few returns as large tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import onnx_ir as ir

from smelt.check.dump import without_weights
from smelt.ir.spilled import drop_pages
from smelt.ir.walk import model_graphs

_SMALL_BYTES = 1 << 16


class WeightsDigest:
    def __init__(self, model: ir.Model) -> None:
        pieces = list(_pieces(model))
        pool = ThreadPoolExecutor(1, "smelt-digest")
        self._result = pool.submit(_digest, pieces)
        self._model = model
        pool.shutdown(wait=False)

    def digest(self) -> bytes:
        """Waits for the end."""
        return self._result.result()

    @cached_property
    def of_graphs(self) -> bytes:
        """A digest of all else, of the model as it is when this is asked for first."""
        return hashlib.sha256(without_weights(self._model)).digest()


def _digest(pieces: list[tuple[memoryview, ir.TensorProtocol | None]]) -> bytes:
    digest = hashlib.sha256()
    for piece, tensor in pieces:
        digest.update(piece)
        drop_pages(tensor)
    return digest.digest()


def _pieces(model: ir.Model) -> Iterator[tuple[memoryview, ir.TensorProtocol | None]]:
    small: list[bytes] = []
    for graph in model_graphs(model):
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is None or tensor.dtype == ir.DataType.STRING:
                continue
            array = np.ascontiguousarray(tensor.numpy())
            if array.nbytes < _SMALL_BYTES:
                small.append(array.tobytes())
            else:
                yield array.view(np.uint8).reshape(-1).data, tensor
    yield memoryview(b"".join(small)), None
