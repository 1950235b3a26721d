"""Stage `export_codec`: the trained decoder, as it ships (float16 weights and configuration).

Takes the running average that the codec stage keeps. It does not judge; `resynthesis.py` does.
"""

import argparse
import logging
from pathlib import Path

from safetensors.torch import load_file

from codec.builtin import BuiltinCodec, DecoderConfig
from codec.builtin.codec import SHIPPED
from codec.builtin.network import Decoder

LOG = logging.getLogger(__name__)
CONTRAST = 1.1  # an L1 fit shrinks envelopes towards their mean; undoing a tenth of it raised DNSMOS


def trained(work: Path) -> BuiltinCodec:
    """The decoder of the codec stage's last checkpoint."""
    path = work / "codec.safetensors"
    if not path.exists():
        raise SystemExit(f"export_codec: {path} is missing; run `python -m experiments.builtin.train_codec` first")
    decoder = Decoder(DecoderConfig())
    decoder.load_state_dict(load_file(str(path)))
    decoder.deviation[:-2] *= CONTRAST
    return BuiltinCodec(decoder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/builtin"))
    parser.add_argument("--to", type=Path, default=SHIPPED)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    trained(arguments.work).save(arguments.to)
    size = (arguments.to / "model.safetensors").stat().st_size
    LOG.info("%s: %.1f MB", arguments.to / "model.safetensors", size / 1e6)


if __name__ == "__main__":
    main()
