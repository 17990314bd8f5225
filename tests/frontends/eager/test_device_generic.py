"""PyTorch's device-generic machinery, instantiated for the device, over every database that ships in its wheel.

The wheel holds no test classes, but what they are made of: `instantiate_device_type_tests`, descriptions of modules,
optimizers, lists of tensors, autograd functions and custom ops with their samples. Each runs here on `ort` against the
CPU. The operators' own database has a runner of its own (tests/conformance_eager).
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's machinery needs it")

import smelt.frontends.eager as eager  # noqa: E402

assert eager.AVAILABLE
torch.empty(
    0, device="ort"
)  # PyTorch looks for devices to test as it is imported below, and sees this one once it is in use

from torch.nn.modules.lazy import LazyModuleMixin  # noqa: E402
from torch.testing._internal.autograd_function_db import autograd_function_db  # noqa: E402
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops  # noqa: E402
from torch.testing._internal.common_methods_invocations import (  # noqa: E402
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
)
from torch.testing._internal.common_modules import module_db, modules  # noqa: E402
from torch.testing._internal.common_optimizers import optim_db, optims  # noqa: E402
from torch.testing._internal.common_utils import TestCase  # noqa: E402
from torch.testing._internal.custom_op_db import custom_op_db  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

pytestmark = pytest.mark.full
foreach_db = [
    *foreach_unary_op_db, *foreach_binary_op_db, *foreach_pointwise_op_db, *foreach_reduce_op_db, *foreach_other_op_db,
]  # fmt: skip
# What is not compared, and why.
SKIPS = {
    "NumpyExpMarkDirtyAutogradFunction": "writes to the CPU's copy of its argument, in vain on any other device",
}

# A line search takes another step after another rounding.
LOOSE = {"LBFGS": 2e-2}


def on(device: str, tree: Any) -> Any:
    """A copy of nested arguments on a device; leaves stay leaves."""

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return torch.device(device) if isinstance(value, torch.device) else value
        return value.detach().clone().to(device).requires_grad_(value.requires_grad)

    return pytree.tree_map(moved, tree)


def numbers(tree: Any) -> list[Any]:
    """All tensors on the CPU, in order; modules' hidden state and attributes are not looked at."""
    return [leaf.detach().cpu() for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def gradients(result: Any) -> None:
    parts = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    if parts:
        sum(part.float().square().mean() for part in parts).backward()


class TestDevice(TestCase):
    def same(self, got: Any, wanted: Any, least: float = 1e-4) -> None:
        self.assertEqual(len(got), len(wanted))
        for one, other in zip(got, wanted, strict=True):
            size = other.float().square().mean().sqrt().item() if other.numel() else 0.0
            near = least / 4 * max(1.0, size if size == size and size != float("inf") else 1.0)
            torch.testing.assert_close(one, other, rtol=least, atol=near, equal_nan=True)

    @modules(module_db, allowed_dtypes={torch.float32})
    def test_modules(self, device: str, dtype: Any, module_info: Any, training: bool) -> None:
        """Results and gradients of every module of torch.nn, after a move and a round trip of its state."""
        torch.manual_seed(0)
        given = module_info.module_inputs_func(
            module_info, device="cpu", dtype=dtype, requires_grad=training, training=training
        )
        for sample in given:
            if sample.forward_input is None:
                continue
            init = sample.constructor_input
            torch.manual_seed(1)
            plain = module_info.module_cls(*init.args, **init.kwargs).to(dtype).train(training)
            if isinstance(plain, LazyModuleMixin):  # has no parameters to move before its first call
                plain(*sample.forward_input.args, **sample.forward_input.kwargs)
            self.assertTrue(all(p.device.type == "cpu" for p in plain.parameters()))
            outcomes: list[Any] = []
            for place in ("cpu", device):
                module = copy.deepcopy(plain).to(place)
                module.load_state_dict(copy.deepcopy(plain.state_dict()), strict=False)
                args, kwargs = on(place, (sample.forward_input.args, sample.forward_input.kwargs))
                torch.manual_seed(2)
                result = module(*args, **kwargs)
                if training:
                    gradients(result)
                grads = [p.grad for p in module.parameters()] + [
                    t.grad for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)
                ]
                outcomes.append(numbers((result, grads)))
            self.same(outcomes[1], outcomes[0])

    @optims(optim_db, dtypes=[torch.float32])
    def test_optimizers(self, device: str, dtype: Any, optim_info: Any) -> None:
        """Three steps of every optimizer with every sample of its options, as loops and over lists of tensors."""
        ways = [{}, *({name: True} for name in ("foreach",) if name in optim_info.supported_impls)]
        for sample in optim_info.optim_inputs_func(device="cpu"):
            for way in ways:
                outcomes = [self._stepped(optim_info, {**sample.kwargs, **way}, place) for place in ("cpu", device)]
                self.same(outcomes[1], outcomes[0], LOOSE.get(optim_info.optim_cls.__name__, 1e-4))

    def _stepped(self, info: Any, options: dict[str, Any], device: str) -> list[Any]:
        generator = torch.Generator().manual_seed(0)
        weights = [torch.nn.Parameter(torch.randn(size, generator=generator).to(device)) for size in ((3, 4), (4, 2))]
        options = on(device, {k: v for k, v in options.items() if k not in ("capturable", "fused")})
        steering = info.optim_cls(weights, **options)
        x = torch.randn(5, 3, generator=generator).to(device)

        def closure() -> Any:
            steering.zero_grad()
            loss = (x @ weights[0] @ weights[1]).square().mean()
            loss.backward(create_graph=False)
            if info.only_supports_sparse_grads:
                for weight in weights:
                    weight.grad = weight.grad.to_sparse()
            return loss

        for _ in range(3):
            if info.step_requires_closure:
                steering.step(closure)
            else:
                closure()
                steering.step()
        return numbers((weights, steering.state_dict()["state"]))

    @ops(foreach_db, allowed_dtypes=(torch.float32,))
    def test_lists_of_tensors(self, device: str, dtype: Any, op: Any) -> None:
        """Ops over lists, new results and in place."""
        for form in (op.method_variant, op.inplace_variant):
            if form is None:
                continue
            torch.manual_seed(0)
            samples = op.sample_inputs("cpu", dtype, num_input_tensors=[2], allow_higher_dtype_scalars=False)
            for sample in list(samples)[:4]:
                outcomes: list[Any] = []
                for place in ("cpu", device):
                    first, args, kwargs = on(place, (sample.input, sample.args, sample.kwargs))
                    kwargs = {k: v for k, v in kwargs.items() if k not in ("disable_fastpath", "zero_size")}
                    try:
                        result = form(first, *args, **kwargs)
                        outcomes.append(numbers((result, first)))
                    except Exception as error:
                        outcomes.append(type(error))
                if isinstance(outcomes[0], list):
                    self.same(outcomes[1], outcomes[0])
                else:
                    self.assertEqual(outcomes[1], outcomes[0])

    @ops([*autograd_function_db, *custom_op_db], allowed_dtypes=(torch.float32,))
    def test_functions_of_users(self, device: str, dtype: Any, op: Any) -> None:
        """Autograd functions and custom ops that are written with numpy: they move to the CPU and back themselves."""
        if op.name in SKIPS:
            self.skipTest(SKIPS[op.name])
        torch.manual_seed(0)
        for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
            outcomes: list[Any] = []
            for place in ("cpu", device):
                first, args, kwargs = on(place, (sample.input, sample.args, sample.kwargs))
                result = op.op(first, *args, **kwargs)
                gradients(result)
                outcomes.append(
                    numbers((result, [t.grad for t in pytree.tree_leaves((first, args)) if hasattr(t, "grad")]))
                )
            self.same(outcomes[1], outcomes[0])


instantiate_device_type_tests(TestDevice, globals(), only_for=("privateuse1",))
assert any(name.startswith("TestDevice") for name in globals()), "PyTorch made no tests for the device"
