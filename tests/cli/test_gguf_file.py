"""GGUF files of language models: compiled into folders of onnxruntime-genai without loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smelt.base.errors import LoadError, SmeltError
from smelt.bench.llm_gguf import random_blocks, write_gguf
from smelt.bench.llm_models import MODELS
from smelt.frontends.gguf_blocks import KINDS, blocks_of
from smelt.frontends.gguf_file import read_gguf
from smelt.frontends.gguf_folder import build_gguf_folder
from smelt.ops.block_quantized import dequantized
from smelt.runtime import Executable

gguf: Any = pytest.importorskip("gguf", reason="the package gguf reads and writes the files")
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_blocks_are_worth_what_they_were(kind: str) -> None:
    raw = random_blocks(np.random.default_rng(0), kind, (5, 512))
    found, wanted = blocks_of(kind, raw), gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    made = dequantized(found.weights, found.scales, found.zeros, found.bits, (5, 512 // found.size, found.size))
    allowed = 0 if found.zeros is None else 1e-6 * np.abs(wanted).max()  # zero points are rounded once
    assert np.abs(made - wanted).max() <= allowed and np.abs(wanted).max() > 0


def test_parts_of_one_number_keep_it() -> None:
    """A scale of 0 leaves the minimum alone."""
    raw = random_blocks(np.random.default_rng(1), "Q4_K", (3, 512))
    raw.reshape(3, 2, 144)[..., 4:8] = 0
    raw.reshape(3, 2, 144)[:, 1, 8:12] = 0
    found, wanted = blocks_of("Q4_K", raw), gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q4_K)
    made = dequantized(found.weights, found.scales, found.zeros, 4, (3, 16, 32))
    np.testing.assert_allclose(made, wanted, rtol=1e-6, atol=1e-7)
    assert np.abs(wanted[:, 128:256]).max() > 0


FILES = [
    ("tiny-qwen2", "Q4_0", ""), ("tiny-qwen2", "Q8_0", ""), ("tiny-qwen2", "Q4_K", "Q6_K"), ("tiny-llama", "Q4_0", ""),
    ("tiny-llama", "Q4_K", "Q6_K"), ("tiny-llama", "Q6_K", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "mixed"), FILES)
def test_logits_are_those_of_the_blocks_in_float64(call: Any, tmp_path: Path, name: str, kind: str, mixed: str) -> None:
    write_gguf(name, tmp_path / "m.gguf", kind, mixed=mixed)
    ran = call("compile", tmp_path / "m.gguf", "--force", "--no-timing", "-o", tmp_path / "out")
    assert ran.code == 0, ran.err
    ids = np.random.default_rng(2).integers(0, 512, 9)
    wanted = decoded(gguf.GGUFReader(tmp_path / "m.gguf"), MODELS[name], ids)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert not manifest["fallbacks"]
    with_cache = step(Executable.open(tmp_path / "out"), MODELS[name], ids, cut=6)
    error = np.abs(with_cache - wanted) / (np.abs(wanted) + np.sqrt(np.mean(np.square(wanted))))
    assert error.max() < 1e-5


def step(model: Any, sizes: Any, ids: Array, cut: int) -> Array:
    """Logits of the last token: a prompt of `cut` tokens, then the others with its cache."""
    depth, kv = sizes["hidden_size"] // sizes["num_attention_heads"], sizes["num_key_value_heads"]
    names = [f"past_key_values.{i}.{n}" for i in range(sizes["num_hidden_layers"]) for n in ("key", "value")]
    caches = {name: np.zeros((1, kv, 0, depth), np.float32) for name in names}
    logits = np.zeros(0)
    for first, last in ((0, cut), *((at, at + 1) for at in range(cut, len(ids)))):
        feeds = {"input_ids": ids[None, first:last], "attention_mask": np.ones((1, last), np.int64), **caches}
        logits, *present = model.run(feeds)
        caches = dict(zip(names, present, strict=True))
    return logits[0, -1].astype(np.float64)


def decoded(reader: Any, sizes: Any, ids: Array) -> Array:
    """The last row of logits in float64, from the file alone."""
    weights = {one.name: gguf.quants.dequantize(one.data, one.tensor_type).astype(np.float64) for one in reader.tensors}
    llama = sizes["architecture"] == "Llama"
    x = weights["token_embd.weight"][ids]
    for layer in range(sizes["num_hidden_layers"]):
        part = {name.split(".", 2)[2]: w for name, w in weights.items() if name.startswith(f"blk.{layer}.")}
        x = x + attended(rms(x, part["attn_norm.weight"], sizes), part, sizes, llama)
        h = rms(x, part["ffn_norm.weight"], sizes)
        gate = h @ part["ffn_gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ part["ffn_up.weight"].T)) @ part["ffn_down.weight"].T
    last = rms(x, weights["output_norm.weight"], sizes)[-1]
    return last @ weights.get("output.weight", weights["token_embd.weight"]).T


def rms(x: Array, weight: Array, sizes: Any) -> Array:
    return x / np.sqrt(np.mean(np.square(x), -1, keepdims=True) + sizes["rms_norm_eps"]) * weight


def attended(h: Array, part: dict[str, Array], sizes: Any, neighbours: bool) -> Array:
    heads, kv = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    q, k, v = (h @ part[f"attn_{n}.weight"].T + part.get(f"attn_{n}.bias", 0.0) for n in "qkv")
    q, k, v = q.reshape(len(h), heads, -1), k.reshape(len(h), kv, -1), v.reshape(len(h), kv, -1)
    q, k = rotated(q, sizes["rope_theta"], neighbours), rotated(k, sizes["rope_theta"], neighbours)
    k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(len(h), dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    made = np.einsum("hij,jhd->ihd", shares / shares.sum(-1, keepdims=True), v)
    return made.reshape(len(h), -1) @ part["attn_output.weight"].T


def rotated(x: Array, base: float, neighbours: bool) -> Array:
    depth = x.shape[-1]
    angles = np.arange(len(x))[:, None] * base ** (-np.arange(0, depth, 2) / depth)
    turn = np.exp(1j * angles)[:, None]
    one, other = (x[..., ::2], x[..., 1::2]) if neighbours else (x[..., : depth // 2], x[..., depth // 2 :])
    made = (one + 1j * other) * turn
    out = np.empty_like(x)
    if neighbours:
        out[..., ::2], out[..., 1::2] = made.real, made.imag
    else:
        out[..., : depth // 2], out[..., depth // 2 :] = made.real, made.imag
    return out


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_gguf("tiny-qwen2", tmp_path / "m.gguf", "Q4_0")
    return tmp_path / "m.gguf"


def test_stock_genai_chats_with_the_folder(call: Any, written: Path, tmp_path: Path) -> None:
    genai: Any = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai runs the folder")
    ran = call("compile", written, "--force", "--no-timing", "-o", tmp_path / "out")
    assert ran.code == 0, ran.err
    built = build_gguf_folder(written, tmp_path, "", "exact")
    model = genai.Model(str(tmp_path / "out"))
    tokenizer = genai.Tokenizer(model)
    ids = tokenizer.encode("the cat")
    assert tokenizer.decode(ids) == "the cat" and len(ids) == 6  # "th" is a token
    assert greedy(genai, tmp_path / "out", ids) == greedy(genai, built, ids)


def greedy(genai: Any, folder: Path, prompt: Any) -> list[int]:
    model = genai.Model(str(folder))
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=60, min_length=60, do_sample=False)
    generator = genai.Generator(model, params)
    generator.append_tokens(np.asarray([prompt], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(call: Any, written: Path, tmp_path: Path, share: float) -> None:
    whole = written.read_bytes()
    written.write_bytes(whole[: int(len(whole) * share)])
    ran = call("compile", written, "-o", tmp_path / "out")
    assert ran.code != 0 and "SM-LOAD-009" in ran.err
    assert not (tmp_path / "out").exists()


def test_blocks_of_another_type_are_named(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smelt.frontends.gguf_file.KINDS", frozenset({"Q8_0"}))
    with pytest.raises(LoadError, match="type Q4_0") as caught:
        read_gguf(written)
    assert caught.value.code == "SM-LOAD-010"


def patched(written: Path, old: bytes, new: bytes) -> Path:
    """The file with one of its numbers or names exchanged."""
    whole = written.read_bytes()
    assert len(old) == len(new) and whole.count(old) == 1
    written.write_bytes(whole.replace(old, new))
    return written


def test_an_unknown_type_of_blocks_is_refused(written: Path) -> None:
    name = b"blk.0.ffn_up.weight"
    shape = (2).to_bytes(4, "little") + (256).to_bytes(8, "little") + (512).to_bytes(8, "little")
    file = patched(written, name + shape + (2).to_bytes(4, "little"), name + shape + (999).to_bytes(4, "little"))
    with pytest.raises(LoadError, match="999") as caught:
        read_gguf(file)
    assert caught.value.code == "SM-LOAD-009"


def test_a_tensor_of_another_shape_is_refused(written: Path, tmp_path: Path) -> None:
    name = b"blk.0.ffn_up.weight"
    old, new = ((2).to_bytes(4, "little") + (256).to_bytes(8, "little") + n.to_bytes(8, "little") for n in (512, 256))
    with pytest.raises(LoadError, match=r"ffn_up.*256"):
        build_gguf_folder(patched(written, name + old, name + new), tmp_path, "", "exact")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [b"blk.1.ffn_up.weight", b"output_norm.weight", b"token_embd.weight"])
def test_a_missing_tensor_is_named(written: Path, tmp_path: Path, name: bytes) -> None:
    patched(written, name, name[:-1] + b"x")
    with pytest.raises(LoadError, match=name.decode()):
        build_gguf_folder(written, tmp_path, "", "exact")


def test_an_unknown_architecture_is_refused(written: Path) -> None:
    length = (5).to_bytes(8, "little")
    written.write_bytes(written.read_bytes().replace(length + b"qwen2", length + b"bloom", 1))
    with pytest.raises(LoadError, match="bloom") as caught:
        read_gguf(written)
    assert caught.value.code == "SM-LOAD-010"


def test_other_precisions_are_refused(written: Path, tmp_path: Path) -> None:
    with pytest.raises(SmeltError, match="stay as they are"):
        build_gguf_folder(written, tmp_path, "w4", "exact")


def test_wrong_tokens_are_errors(call: Any, written: Path, tmp_path: Path) -> None:
    ran = call("compile", written, "--force", "--no-timing", "-o", tmp_path / "out")
    assert ran.code == 0, ran.err
    with pytest.raises(Exception, match="index 512 out of range"):
        step(Executable.open(tmp_path / "out"), MODELS["tiny-qwen2"], np.array([3, 512, 4]), cut=2)
