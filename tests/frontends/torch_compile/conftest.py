"""Each test begins with no compiled functions; torch is needed for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    import smelt.frontends.torch_compile  # noqa: F401 - registers the backend where smelt is not installed

    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
