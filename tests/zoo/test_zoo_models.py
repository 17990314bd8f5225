"""Architectures are shrunk, judged and reported as they should be; some go the whole way."""

from __future__ import annotations

import pytest
import torch
from zoo_build import SIZES_OF_INPUTS, build, inputs, kinds
from zoo_names import NAMES
from zoo_run import good, page, report
from zoo_worker import Subject, difference, leaves, run


@pytest.mark.parametrize("name", ["bert", "t5", "mixtral", "resnet", "wav2vec2", "mamba"])
def test_a_shrunk_architecture_runs_at_both_sizes(name: str):
    model, config = build(name)
    assert sum(parameter.numel() for parameter in model.parameters()) < 1_500_000
    for batch, length in SIZES_OF_INPUTS:
        with torch.no_grad():
            found = leaves(model(**inputs(model, config, batch, length)))
        assert found[0].shape[0] == batch
        assert torch.isfinite(found[0]).all()


def test_the_chosen_architectures_exist_and_are_a_hundred():
    assert set(NAMES) <= set(kinds())
    assert len(set(NAMES)) == len(NAMES) > 100


def test_an_error_is_seen_where_eager_is_near_the_truth():
    exact = torch.linspace(-1, 1, 64, dtype=torch.float64)
    eager = exact.float()
    assert not difference(eager.clone(), eager, exact)
    wrong = eager.clone()
    wrong[5] += 1e-4
    assert "error" in difference(wrong, eager, exact)
    assert difference(eager.double(), eager, exact)
    assert difference(eager[:5], eager, exact)
    assert difference(torch.full_like(eager, torch.nan), eager, exact)


def test_a_changed_weight_is_noticed():
    subject = Subject("distilbert")
    with torch.no_grad():
        assert not subject.problem(0, subject.model)
        next(p for name, p in subject.model.named_parameters() if "lin1.weight" in name).mul_(1.01)
        said = subject.problem(0, subject.model)
    assert "output 0" in said and "median over 15 other inputs" in said


def answers(count: int, **others: str) -> dict[str, dict[str, dict[str, str]]]:
    found = {f"m{n}": {"compile": {"status": "pass"}} for n in range(count)}
    return found | {name: {"compile": {"status": status, "detail": "why"}} for name, status in others.items()}


def test_one_wrong_model_or_too_few_right_ones_are_not_good():
    assert good(answers(100, a="unbuilt", b="refused"))
    assert not good(answers(99))
    assert not good(answers(100, a="mismatch"))
    assert not good(answers(100, a="recompiled"))


def test_the_report_counts_and_gives_reasons():
    text = report(answers(3, a="mismatch", b="unbuilt"))
    assert "compile: 3 of 4 right" in text
    assert "compile: why" in text


def test_the_page_has_a_row_for_what_was_run():
    text = page(answers(2, a="mismatch"))
    assert "- compile: 2 of 3 right" in text
    assert "| a | mismatch |  |" in text
    assert "| architecture | compile | compiles (allowed) |" in text


def test_rows_of_tokens_differ_in_length_and_no_weight_is_one_number():
    model, config = build("bert")
    assert inputs(model, config, 2, 16)["attention_mask"].sum(1).tolist() == [13, 16]
    assert all(len(set(p.flatten().tolist())) > 1 for p in model.parameters())


def test_what_cannot_be_built_says_why():
    assert run("decision_transformer", "plain")["status"] == "unbuilt"


@pytest.mark.full
@pytest.mark.parametrize("mode", ["plain", "export"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "vit", "llama"])
def test_an_architecture_goes_the_whole_way(name: str, mode: str):
    found = run(name, mode)
    assert found["status"] in ("pass", "partly"), found
