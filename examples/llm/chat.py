"""Chat in a terminal with a folder of onnxruntime-genai: `python chat.py FOLDER`. Ctrl-C stops the answer, Ctrl-D ends.

The folder is what `smelt compile` writes; nothing here knows of smelt.
"""

import argparse
import json
import sys
from collections.abc import Iterator

import onnxruntime_genai as genai


class Chat:
    """A model and the tokens of the talk so far, which stay in its cache."""

    def __init__(self, folder: str, most: int) -> None:
        self.model = genai.Model(folder)
        self.tokenizer = genai.Tokenizer(self.model)
        self.most = most
        self.talk: list[dict[str, str]] = []
        params = genai.GeneratorParams(self.model)
        params.set_search_options(max_length=most)
        self.generator = genai.Generator(self.model, params)

    def answer(self, text: str) -> Iterator[str]:
        """Pieces of the answer as they come; whoever stops asking stops the answer."""
        self.talk.append({"role": "user", "content": text})
        tokens = self.tokenizer.encode(self._prompt(text))
        if len(tokens) == 0 or self.generator.token_count() + len(tokens) >= self.most:
            yield "(nothing to say)" if len(tokens) == 0 else f"(the talk is full: {self.most} tokens)"
            return
        self.generator.append_tokens(tokens)
        stream, said = self.tokenizer.create_stream(), ""
        try:
            while not self.generator.is_done() and self.generator.token_count() < self.most:
                self.generator.generate_next_token()
                piece = stream.decode(self.generator.get_next_tokens()[0])
                said += piece
                yield piece
        finally:
            self.talk.append({"role": "assistant", "content": said})

    def _prompt(self, text: str) -> str:
        """By the model's template, of the last words only: the others are in the cache."""
        try:
            return self.tokenizer.apply_chat_template(json.dumps(self.talk[-1:]), add_generation_prompt=True)
        except Exception:  # a model without a template
            return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--length", type=int, default=2048, help="most tokens of the talk")
    chosen = parser.parse_args()
    chat = Chat(chosen.folder, chosen.length)
    while True:
        print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        try:
            for piece in chat.answer(line.rstrip("\n")):
                print(piece, end="", flush=True)
        except KeyboardInterrupt:
            print(" (stopped)", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
