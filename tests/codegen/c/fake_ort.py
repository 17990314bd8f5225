"""An ONNX Runtime made of ctypes callbacks, as the glue sees it: counts what it lends, fails where it is told to."""

import ctypes
import time
from collections.abc import Callable

import numpy as np

POINTER, TEXT, INT, SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
OUT = ctypes.POINTER(POINTER)
OUT_SIZE = ctypes.POINTER(SIZE)
DIMS = ctypes.POINTER(ctypes.c_int64)
COMPUTE_FIELD = 18  # of the custom-op struct, counted in pointers


class FakeRuntime:
    """`lent` holds what the glue must give back: kind -> handles still out."""

    def __init__(self, newest: int = 30, version: bytes = b"1.30.0") -> None:
        self.domains: list[bytes] = []
        self.added: list[int] = []
        self.ops: dict[str, int] = {}
        self.by_provider: dict[tuple[str, str], int] = {}
        self.texts: dict[int, str] = {}
        self.lent: dict[str, set[int]] = {"status": set(), "shape": set(), "allocator": set(), "block": set()}
        self.wrong: list[str] = []
        self.inputs: list[np.ndarray | None] = []
        self.outputs: dict[int, np.ndarray] = {}
        self.fail_at = -1  # which of the calls that may fail does
        self.calls = 0
        self._next = 1 << 20
        self._buffers: dict[int, ctypes.Array] = {}
        self._keep: list[object] = []
        self._table = (POINTER * 500)()
        self._fill()
        get_api = ctypes.CFUNCTYPE(POINTER, ctypes.c_uint32)(
            lambda wanted: ctypes.addressof(self._table) if wanted <= newest else None
        )
        get_version = ctypes.CFUNCTYPE(POINTER)(lambda: ctypes.cast(TEXT(version), POINTER).value)
        self._keep += [version, get_api, get_version]
        self.base = (POINTER * 2)(*(ctypes.cast(f, POINTER).value for f in (get_api, get_version)))

    def register(self, library: ctypes.CDLL) -> int | None:
        library.RegisterCustomOps.restype = POINTER
        return library.RegisterCustomOps(None, self.base)

    def compute(self, name: str, inputs: list[np.ndarray | None], fail_at: int = -1) -> str | None:
        """Run one operator; None when it succeeded, else the text of the status that it returned."""
        self.inputs, self.outputs, self.fail_at, self.calls = inputs, {}, fail_at, 0
        function = ctypes.cast(self.ops[name], OUT)[COMPUTE_FIELD]
        status = ctypes.CFUNCTYPE(POINTER, POINTER, POINTER)(function)(self.ops[name], 1)
        if not status:
            return None
        self._drop_pages("status", status)
        return self.texts[status]

    def _fill(self) -> None:
        self._slot(0, self._status, INT, TEXT)
        self._slot(26, self._domain, TEXT, OUT)
        self._slot(27, self._op, POINTER, POINTER)
        self._slot(28, lambda options, domain: self.added.append(domain), POINTER, POINTER)
        self._slot(51, self._may_fail(self._data), POINTER, OUT)
        self._slot(61, self._may_fail(self._rank), POINTER, OUT_SIZE)
        self._slot(62, self._may_fail(self._dims), POINTER, DIMS, SIZE)
        self._slot(65, self._may_fail(self._shape), POINTER, OUT)
        self._slot(69, self._memory, INT, INT, OUT)
        self._slot(75, self._may_fail(self._alloc), POINTER, SIZE, OUT)
        self._slot(76, self._may_fail(self._free), POINTER, POINTER)
        self._slot(90, self._may_fail(self._input), POINTER, SIZE, OUT)
        self._slot(91, self._may_fail(self._output), POINTER, SIZE, DIMS, SIZE, OUT)
        self._slot(93, lambda handle: self._drop_pages("status", handle), POINTER)
        self._slot(99, lambda handle: self._drop_pages("shape", handle), POINTER)
        self._slot(132, lambda handle: self._drop_pages("allocator", handle), POINTER)
        self._slot(
            253, self._may_fail(lambda context, memory, out: self._lend("allocator", out)), POINTER, POINTER, OUT
        )
        self._slot(274, self._may_fail(self._parallel), POINTER, POINTER, SIZE, SIZE, POINTER)

    def _slot(self, number: int, function: Callable[..., int | None], *arguments: type) -> None:
        made = ctypes.CFUNCTYPE(POINTER, *arguments)(function)
        self._keep.append(made)
        self._table[number] = ctypes.cast(made, POINTER).value

    def _may_fail(self, function: Callable[..., None]) -> Callable[..., int | None]:
        def wrapped(*arguments: object) -> int | None:
            self.calls += 1
            done = function(*arguments) if function == self._free else None  # a failing free has freed nonetheless
            if self.calls - 1 == self.fail_at:
                return self._status(1, f"planted failure {self.fail_at}".encode())
            return done if function == self._free else function(*arguments)

        return wrapped

    def _handle(self, kind: str) -> int:
        self._next += 64
        self.lent[kind].add(self._next)
        return self._next

    def _drop_pages(self, kind: str, handle: int) -> None:
        if handle in self.lent[kind]:
            self.lent[kind].remove(handle)
        else:
            self.wrong.append(f"{kind} {handle} was not lent")  # an exception would be lost on its way through C

    def _lend(self, kind: str, out: object) -> None:
        out[0] = self._handle(kind)

    def _status(self, code: int, text: bytes) -> int:
        handle = self._handle("status")
        self.texts[handle] = text.decode()
        return handle

    def _domain(self, name: bytes, out: object) -> None:
        time.sleep(0.02)  # so that a race would show
        self.domains.append(name)
        out[0] = 1000 + len(self.domains)

    def _op(self, domain: int, op: int) -> None:
        name = ctypes.CFUNCTYPE(TEXT, POINTER)(ctypes.cast(op, OUT)[2])(op)
        provider = ctypes.CFUNCTYPE(TEXT, POINTER)(ctypes.cast(op, OUT)[3])(op)
        self.ops[name.decode()] = self.by_provider[name.decode(), provider.decode()] = op

    def _memory(self, allocator_type: int, memory_type: int, out: object) -> None:
        out[0] = 1

    # A value handle is 1 + its input's index, or 1001 + its output's index. A shape handle maps back by `_shapes`.
    def _input(self, context: int, index: int, out: object) -> None:
        out[0] = None if self.inputs[index] is None else 1 + index

    def _output(self, context: int, index: int, dims: object, rank: int, out: object) -> None:
        shape = [dims[i] for i in range(rank)]
        dtype = np.int64 if self.inputs and self.inputs[0].dtype == np.int64 else np.float32
        self.outputs[index] = np.zeros(shape, dtype)
        out[0] = 1001 + index

    def _data(self, value: int, out: object) -> None:
        array = self.outputs[value - 1001] if value > 1000 else self.inputs[value - 1]
        out[0] = array.ctypes.data if array.size else None

    def _shape(self, value: int, out: object) -> None:
        self._lend("shape", out)
        self.texts[out[0]] = str(value)

    def _array_of(self, shape: int) -> np.ndarray:
        return self.inputs[int(self.texts[shape]) - 1]

    def _rank(self, shape: int, out: object) -> None:
        out[0] = self._array_of(shape).ndim

    def _dims(self, shape: int, dims: object, rank: int) -> None:
        for i, dim in enumerate(self._array_of(shape).shape):
            dims[i] = dim

    def _alloc(self, allocator: int, size: int, out: object) -> None:
        buffer = ctypes.create_string_buffer(size)
        address = ctypes.addressof(buffer)
        self._buffers[address] = buffer
        self.lent["block"].add(address)
        out[0] = address

    def _free(self, allocator: int, address: int) -> None:
        self._drop_pages("block", address)
        self._buffers.pop(address, None)

    def _parallel(self, context: int, body: int, total: int, batches: int, data: int) -> None:
        run = ctypes.CFUNCTYPE(None, POINTER, SIZE)(body)
        for index in range(total):
            run(data, index)
