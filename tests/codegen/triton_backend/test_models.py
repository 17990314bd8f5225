"""Regions of whole models, as small ones, by Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from simulate import Captured, Simulated

from smelt.base import Config
from smelt.base.dtype import BY_NAME
from smelt.bench import zoo
from smelt.check.contract import compare_all, op_class
from smelt.codegen.triton.backend import TritonBackend
from smelt.ir.load import load_model
from smelt.ops import analyze
from smelt.ops.reference import evaluate_nodes
from smelt.partition import capture
from smelt.passes import run_passes

# Regions that every model has at least, so that none is right because nothing was taken.
REGIONS = {"distilbert": 10, "gpt2": 10, "llama": 10, "vit": 10}


def planned(name: str) -> Captured:
    """As a compilation plans it, by the same passes."""
    model = load_model(zoo.export(name, Config.from_env(), "tiny"))
    run_passes(model)
    facts = analyze(model)
    backend = TritonBackend(facts, list(model.graph.inputs))
    return Captured(model, facts, capture(model, [backend], force=True))


def evaluated(made: Captured, feeds: dict[str, np.ndarray]) -> dict[Any, Any]:
    """Every value of the model, by the float64 reference."""
    graph = made.model.graph
    env: dict[Any, Any] = {value: feeds[value.name] for value in graph.inputs if value.name in feeds}
    env |= {value: np.asarray(value.const_value.numpy()) for value in graph.initializers.values()}
    return dict(evaluate_nodes(graph, env, made.model.opset_imports))


def operands(made: Captured, region: Any, values: dict[Any, Any]) -> dict[Any, np.ndarray]:
    """What the region reads, in the types that the model has."""
    types = {value: BY_NAME[made.facts.by_value[value].dtype].numpy for value in region.inputs}
    return {value: np.asarray(values[value], types[value]) for value in region.inputs}


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("batch", "length"), [(2, 7), (1, 1)])
@pytest.mark.parametrize("name", REGIONS)
def test_regions_of_a_model_are_right(name: str, batch: int, length: int):
    made = planned(name)
    values = evaluated(made, zoo.feeds(name, batch, length, "tiny", new=2))
    graph = made.model.graph
    sizes = (*graph.inputs, *graph.initializers.values())  # what sizes may be learned from
    given = {value: values[value] for value in sizes}
    assert len(made.plan.regions) >= REGIONS[name]
    for region in made.plan.regions:
        read = operands(made, region, values)
        exact = evaluate_nodes(region.nodes, dict(read), made.model.opset_imports)
        wanted = [exact[value] for value in region.outputs]
        kinds = [node.op_type for node in region.nodes]
        simulated = Simulated(region, made.facts, graph.inputs)
        for pick in (0, 1):
            found = simulated.run({**given, **read}, pick)
            compared = compare_all([found[value] for value in region.outputs], wanted, None, op_class(kinds))
            assert not compared.problem, (region.index, kinds, compared.problem)
