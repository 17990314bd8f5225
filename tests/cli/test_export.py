"""`smelt export`: a Hugging Face folder or a torch module to ONNX, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

torch = pytest.importorskip("torch")

SOURCE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.layer = torch.nn.Embedding(4, 8), torch.nn.Linear(8, 2)
    def forward(self, ids, scale):
        return {"scores": self.layer(self.table(ids)) * scale}

class Shown(Net):
    example_inputs = (torch.zeros(2, 3, dtype=torch.int64), torch.ones(1))

def number(): return 3
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"net_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return name


def test_a_module_is_exported_with_free_sizes(call: Any, source: str, tmp_path: Path):
    shapes = ["--shapes", "ids:2,3", "--types", "ids:int64", "--shapes", "scale:1"]
    ran = call("export", f"{source}:Net", *shapes, "-o", "net.onnx")
    assert ran.code == 0 and ran.out.splitlines()[-3:] == ["inputs: ids, scale", "outputs: scores", "net.onnx"]
    session = ort.InferenceSession("net.onnx")
    scores = session.run(None, {"ids": np.zeros((5, 7), np.int64), "scale": np.ones(1, np.float32)})[0]
    assert scores.shape == (5, 7, 2)
    assert call("export", f"{source}:Shown", "--static", "-o", "static.onnx").code == 0
    assert ort.InferenceSession("static.onnx").get_inputs()[0].shape == [2, 3]


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        ("{}:Net", [], "needs inputs to be traced with"),
        ("{}:Missing", [], "cannot be imported"),
        ("{}:number", [], "gives a int, not a torch module"),
        ("no_such_module_here:Net", [], "cannot be imported"),
        ("nothing", [], "neither a folder nor MODULE:ATTRIBUTE"),
        (".", [], "no config.json"),
        ("{}:Net", ["--types", "ids:complex"], "is not NAME:DTYPE"),
    ],
)
def test_mistakes_are_named(call: Any, source: str, what: str, options: list[str], words: str):
    ran = call("export", what.format(source), *options, "-o", "net.onnx")
    assert ran.code in (1, 2) and words in ran.err and "try:" in ran.err
    assert not Path("net.onnx").exists()


def test_a_hugging_face_folder_is_exported_with_its_own_names(call: Any, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=16, max_position_embeddings=32)
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "folder")
    ran = call("export", tmp_path / "folder", "-o", tmp_path / "bert.onnx")
    assert ran.code == 0, ran.err
    session = ort.InferenceSession(str(tmp_path / "bert.onnx"))
    names = [i.name for i in session.get_inputs()]
    assert names[:2] == ["input_ids", "attention_mask"]
    assert all(i.shape == ["batch", "sequence"] for i in session.get_inputs())
    assert [o.name for o in session.get_outputs()] == ["logits"]
    ids, mask = torch.randint(50, (3, 11)), torch.ones(3, 11, dtype=torch.int64)
    mask[1, 5:] = 0
    with torch.no_grad():
        wanted = model(ids, attention_mask=mask).logits.numpy()
    fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    found = session.run(None, {name: fed[name].numpy() for name in names})[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
