"""Stage `export`: the averaged weights of the language model, in float16, where the built-in engine looks for them.

It refuses weights that float16 cannot hold. It does not write the model card: figures are measured after the export.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch

from engine.builtin.voice import SHIPPED
from engine.moss.checkpoint import load_network, save_network

LOG = logging.getLogger(__name__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/builtin"))
    parser.add_argument("--out", type=Path, default=SHIPPED)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    network = load_network(arguments.work / "lm")
    for name, weight in network.named_parameters():
        if not torch.isfinite(weight.half()).all():
            raise SystemExit(
                f"{arguments.work / 'lm'}: {name} has values that float16 cannot hold: was training stable?"
            )
    save_network(network, arguments.out, torch.float16)
    size = sum(path.stat().st_size for path in arguments.out.glob("*.safetensors"))
    LOG.info("%s: %.1f MB", arguments.out, size / 1e6)


if __name__ == "__main__":
    main()
