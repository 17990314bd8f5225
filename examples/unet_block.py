"""A block of a diffusion UNet: convolutions, group norms, attention over pixels, steps down and up. Needs torch."""

import argparse

from _side_by_side import side_by_side

from smelt.base import Config
from smelt.bench import zoo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=["full", "small", "tiny"], default="tiny")
    scale = parser.parse_args().scale
    path = zoo.export("unet-block", Config.from_env(), scale)
    # Winograd convolutions may be chosen, which are held to 1e-4.
    side_by_side(path, {f"batch {n}": zoo.feeds("unet-block", n, scale=scale) for n in (1, 2)}, worst=1e-4)


if __name__ == "__main__":
    main()
