"""One table of element types: every other table agrees with it."""

import re
from importlib import resources

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from smelt.base.dtype import BY_NAME, BY_ONNX, DTYPES, KERNEL_DTYPES, find_dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_bits_and_numpy_type_are_those_of_onnx(dtype) -> None:
    known = ir.DataType(dtype.onnx)
    if dtype.name != "text":
        assert known.bitwidth == dtype.bits
        assert known.numpy() == dtype.numpy
    assert onnx.TensorProto.DataType.Name(dtype.onnx).lower() == dtype.onnx_name


def test_every_type_of_onnx_is_known() -> None:
    numbers = set(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
    assert numbers == set(BY_ONNX)


def test_c_headers_name_the_same_types() -> None:
    folder = resources.files("smelt.codegen.c") / "include" / "smelt"
    pairs = re.findall(r"^typedef (\w+) T_(\w+);", (folder / "vec" / "vec_types.h").read_text(), re.MULTILINE)
    assert {name: c for c, name in pairs} == {d.name: d.c for d in KERNEL_DTYPES}
    elements = re.findall(r"^#define SMELT_C_(\w+) (\w+)", (folder / "vec" / "element.h").read_text(), re.MULTILINE)
    assert dict(elements) == {d.name: d.c for d in KERNEL_DTYPES}


def test_arithmetic_of_a_type_is_done_in_a_type_that_holds_it() -> None:
    for dtype in DTYPES:
        if dtype.is_narrow:
            wide = BY_NAME[dtype.compute]
            assert wide.bits > dtype.bits and not wide.is_narrow


def test_an_unknown_type_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"f33.*f32.*bf16.*i4"):
        find_dtype("f33")


def test_types_below_a_byte_are_ordinary() -> None:
    assert BY_NAME["i4"].bits == 4 and BY_NAME["u2"].bits == 2
    assert BY_NAME["bf16"].numpy == np.dtype(ml_dtypes.bfloat16)
