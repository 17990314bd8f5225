"""BERT: one artifact for every batch and length, masks honoured. Needs torch and transformers."""

import argparse

from _side_by_side import side_by_side

from smelt.base import Config
from smelt.bench import zoo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=["full", "small", "tiny"], default="tiny")
    scale = parser.parse_args().scale
    path = zoo.export("bert-base", Config.from_env(), scale)
    sizes = {}
    for batch, length in ((1, 128), (1, 37), (4, 16)):
        feeds = zoo.feeds("bert-base", batch, length, scale)
        feeds["attention_mask"][-1, length // 2 :] = 0
        sizes[f"batch {batch}, {length} tokens"] = feeds
    side_by_side(path, sizes)


if __name__ == "__main__":
    main()
