"""An endpoint in OpenAI's form over a folder of onnxruntime-genai: `python serve.py FOLDER --port 8000`.

/v1/completions and /v1/chat/completions, whole or as a stream; one answer at a time. Needs fastapi and uvicorn.
"""

import argparse
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import onnxruntime_genai as genai
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field


class Request(BaseModel):
    prompt: str = ""
    messages: list[dict[str, str]] = Field(default_factory=list)
    max_tokens: int = Field(default=128, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    stream: bool = False


class Answers:
    """A model that one request uses at a time."""

    def __init__(self, folder: str) -> None:
        self.model = genai.Model(folder)
        self.tokenizer = genai.Tokenizer(self.model)
        config = Path(folder, "genai_config.json").read_text(encoding="utf-8")
        self.most = int(json.loads(config)["model"]["context_length"])
        self.lock = Lock()

    def tokens_of(self, asked: Request) -> Any:
        text = asked.prompt
        if asked.messages:
            try:
                text = self.tokenizer.apply_chat_template(json.dumps(asked.messages), add_generation_prompt=True)
            except Exception:  # a model without a template
                text = "\n".join(message.get("content", "") for message in asked.messages)
        tokens = self.tokenizer.encode(text)
        if len(tokens) == 0 or len(tokens) + 1 > self.most:
            raise HTTPException(400, f"{len(tokens)} tokens, not 1 to {self.most - 1}")
        return tokens

    def pieces(self, asked: Request, tokens: Any) -> Iterator[str]:
        params = genai.GeneratorParams(self.model)
        how = {"temperature": asked.temperature, "top_p": asked.top_p} if asked.temperature else {}
        last = min(len(tokens) + asked.max_tokens, self.most)
        params.set_search_options(max_length=last, do_sample=asked.temperature > 0, **how)
        with self.lock:
            generator, stream = genai.Generator(self.model, params), self.tokenizer.create_stream()
            generator.append_tokens(tokens)
            while not generator.is_done():
                generator.generate_next_token()
                yield stream.decode(generator.get_next_tokens()[0])


def application(folder: str) -> FastAPI:
    answers, app = Answers(folder), FastAPI()

    def served(asked: Request, kind: str) -> Any:
        tokens, name = answers.tokens_of(asked), f"cmpl-{uuid.uuid4().hex}"
        chat = kind.startswith("chat")

        def choice(text: str, end: str | None, part: str) -> dict[str, Any]:
            said = {part: {"role": "assistant", "content": text}} if chat else {"text": text}
            return {"id": name, "object": kind, "created": int(time.time()),
                    "choices": [{"index": 0, "finish_reason": end, **said}]}  # fmt: skip

        def lines() -> Iterator[str]:
            for piece in answers.pieces(asked, tokens):
                yield f"data: {json.dumps(choice(piece, None, 'delta'))}\n\n"
            yield f"data: {json.dumps(choice('', 'stop', 'delta'))}\n\ndata: [DONE]\n\n"

        if asked.stream:
            return StreamingResponse(lines(), media_type="text/event-stream")
        made = list(answers.pieces(asked, tokens))
        usage = {"prompt_tokens": len(tokens), "completion_tokens": len(made)}
        end = "length" if len(made) >= asked.max_tokens else "stop"
        return {**choice("".join(made), end, "message"), "usage": usage}

    @app.post("/v1/completions")
    def complete(asked: Request) -> Any:
        return served(asked, "text_completion")

    @app.post("/v1/chat/completions")
    def chat(asked: Request) -> Any:
        return served(asked, "chat.completion")

    return app


def main() -> None:
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, default=8000)
    chosen = parser.parse_args()
    uvicorn.run(application(chosen.folder), host="127.0.0.1", port=chosen.port)


if __name__ == "__main__":
    main()
