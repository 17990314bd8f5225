"""The chat and the endpoint over a compiled folder of a tiny model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai runs the folder")
pytest.importorskip("gguf", reason="the package gguf writes the model")

EXAMPLES = Path(__file__).parent.parent / "examples" / "llm"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from smelt.bench.llm_gguf import write_gguf

    made = tmp_path_factory.mktemp("model")
    write_gguf("tiny-qwen2", made / "m.gguf", "Q4_0")
    command = [sys.executable, "-m", "smelt", "compile", made / "m.gguf", "--force", "--no-timing", "-o", made / "out"]
    subprocess.run(command, check=True, capture_output=True)
    return made / "out"


def test_a_chat_streams_and_goes_on_after_ctrl_c(folder: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "chat.py"), str(folder), "--length", "500"]
    chat = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=0)
    assert chat.stdin is not None and chat.stdout is not None
    assert chat.stdout.read(2) == "> "
    chat.stdin.write("hello\n")
    assert chat.stdout.read(3)  # some of the answer, and no more than that
    chat.send_signal(signal.SIGINT)
    chat.stdin.write("\n")  # an empty line
    chat.stdin.close()
    rest = chat.stdout.read()
    assert chat.wait(timeout=60) == 0
    assert rest.count("> ") >= 2


@pytest.fixture(scope="module")
def address(folder: Path) -> Any:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(EXAMPLES / "serve.py"), str(folder), "--port", str(port)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert server.poll() is None
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(timeout=30)


def posted(url: str, **asked: Any) -> str:
    request = urllib.request.Request(url, json.dumps(asked).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read().decode()


def test_the_endpoint_answers_whole_and_as_a_stream(address: str) -> None:
    asked = {"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 8}
    whole = json.loads(posted(f"{address}/v1/chat/completions", **asked))
    said = whole["choices"][0]["message"]["content"]
    assert whole["usage"]["completion_tokens"] == 8 and whole["choices"][0]["finish_reason"] == "length"
    lines = [line[6:] for line in posted(f"{address}/v1/chat/completions", stream=True, **asked).split("\n\n") if line]
    assert lines[-1] == "[DONE]" and len(lines) == 10
    assert "".join(json.loads(line)["choices"][0]["delta"]["content"] for line in lines[:-1]) == said
    plain = json.loads(posted(f"{address}/v1/completions", prompt="the cat", max_tokens=8))
    assert plain["choices"][0]["text"] == said  # the model has no template


@pytest.mark.parametrize(
    ("asked", "code"), [({"prompt": ""}, 400), ({"prompt": "a" * 600}, 400), ({"prompt": "a", "max_tokens": 0}, 422)]
)
def test_what_cannot_be_answered_is_refused(address: str, asked: dict[str, Any], code: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        posted(f"{address}/v1/completions", **asked)
    assert caught.value.code == code
