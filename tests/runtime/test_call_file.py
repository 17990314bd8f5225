"""A dumped call comes back bit for bit, and a damaged one not at all."""

from pathlib import Path

import numpy as np
import pytest

from smelt.base.errors import InputError
from smelt.runtime import read_call, write_call

DTYPES = ["f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5, 7)], ids=str)
def test_every_dtype_and_shape_comes_back(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    write_call(tmp_path / "call", [array, None], [array.T])
    (first, absent), (expected,) = read_call(tmp_path / "call")
    assert absent is None
    for got, want in ((first, array), (expected, array.T)):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(got, want)


def test_nan_payloads_and_byte_order_survive(tmp_path: Path) -> None:
    bits = np.array([0x7FC12345, 0xFF800001, 0x80000000], np.uint32)
    write_call(tmp_path / "call", [bits.view(np.float32), bits.astype(">u4")], [])
    (floats, swapped), _ = read_call(tmp_path / "call")
    np.testing.assert_array_equal(floats.view(np.uint32), bits)
    np.testing.assert_array_equal(swapped, bits)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "call"
    write_call(path, [np.arange(5, dtype=np.float32)], [np.arange(3)])
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            read_call(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(InputError):
        read_call(path)


def test_a_dtype_without_a_number_cannot_be_dumped(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="complex64"):
        write_call(tmp_path / "call", [np.zeros(2, np.complex64)], [])
