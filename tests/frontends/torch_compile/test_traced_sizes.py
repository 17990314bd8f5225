"""Kernels are verified at the sizes that tracing saw, where integers decide them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from smelt.check import Findings  # noqa: E402
from smelt.frontends.torch_compile.parts import sessions  # noqa: E402


class Rotations(torch.nn.Module):
    """Rows for so many places, in groups of four; the places are those of no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(16, 16)

    def forward(self, x: Any, count: int) -> Any:
        places = torch.arange(count).reshape(count // 4, 4).flatten().float()
        rows = torch.cos(places[:, None] * torch.arange(16) / 16)
        return torch.softmax(self.mix(torch.tanh(rows)), -1) @ x


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> list[Findings]:
    """What verification found, for each graph."""
    found: list[Findings] = []
    compile_to = sessions.compile_to

    def watched(*args: Any) -> Any:
        result = compile_to(*args)
        assert result.findings is not None
        found.append(result.findings)
        return result

    monkeypatch.setattr(sessions, "compile_to", watched)
    return found


def test_a_length_that_no_tensor_tells_is_that_of_the_example_and_others_near_it(findings: list[Findings]):
    module, x = Rotations().eval(), torch.randn(16, 3)
    fast = torch.compile(module, backend="smelt", dynamic=True, options={"kernels": True, "cache_size": 0})
    with torch.no_grad():
        for count in (24, 40):
            torch.testing.assert_close(fast(x, count), module(x, count), rtol=1e-4, atol=1e-5)
    (found,) = findings
    assert not found.rejected and found.verdicts
    made = {name: (shape, numbers) for name, (_, shape, _, numbers) in found.compared["made"].items()}
    assert ([], [24]) in made.values() and any(shape == [16, 3] for shape, _ in made.values())
    (symbol,) = [dims for dims in found.compared["dims"].values() if isinstance(dims, str)]
    assert {sizes[symbol] for sizes in found.compared["bindings"]} >= {24, 48}
