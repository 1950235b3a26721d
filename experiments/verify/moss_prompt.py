"""Golden checks of prompt packing: messages to rows of ids, with a toy tokenizer that anyone can repeat.

The toy's ids depend on where a text is cut, so that they are right only if the pieces are tokenised one by one. It does
not know any network.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.moss.config import SpecialIds
from engine.moss.packing import RowLayout, Script, pack
from experiments.verify.compare import Check, Golden

_RUN = re.compile(r"[^\W\d_]+|[\W\d_]+")
_TOY_VOCABULARY = 150_000


def verify_moss_prompt(folder: Path) -> list[Check]:
    """All checks of a bundle of `cases.json` and `golden.safetensors`; `ValueError` where they cannot be read."""
    golden = Golden(folder / "golden.safetensors")
    path = folder / "cases.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        layout, cases = _layout(raw), list(raw["cases"])
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist: a bundle of prompts needs it beside golden.safetensors") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} lists no cases ({error!r}): copy the bundle again") from None
    packed = [_packed(case, layout, golden) for case in cases]
    for index, rows in enumerate(packed):
        golden.check(f"ids.{index}", rows)
    batch = [packed[case] for case in golden["batch_cases"].tolist()]
    padding = layout.text_rows([layout.ids.pad])[0]
    golden.check("batch_ids", _left_padded(batch, padding))
    golden.check("batch_mask", _left_padded([torch.ones(len(rows), 1) for rows in batch], torch.zeros(1))[..., 0] == 1)
    return golden.checks


def toy_tokenize(text: str) -> list[int]:
    """Runs of letters and runs of everything else; an id is the run's CRC-32."""
    return [zlib.crc32(run.encode()) % _TOY_VOCABULARY for run in _RUN.findall(text)]


def _layout(raw: Mapping[str, Any]) -> RowLayout:
    ids = {name: int(number) for name, number in raw["token_ids"].items()}
    audio_pad = ids.pop("audio_pad")
    return RowLayout(SpecialIds(**ids), int(raw["n_vq"]), audio_pad)


def _packed(case: Mapping[str, Any], layout: RowLayout, golden: Golden) -> Tensor:
    user = dict(case["user"])
    script = Script(text=user.pop("text") or "", **user)
    continues = case["mode"] == "continuation"
    # The reference ignores references in a continuation; ours refuses them.
    references = () if continues else [golden[f"codes.{index}"] for index in case.get("refs", ())]
    spoken = golden[f"codes.{case['prompt']}"] if continues else None
    return pack(script, toy_tokenize, layout, references=references, spoken=spoken)


def _left_padded(prompts: list[Tensor], padding: Tensor) -> Tensor:
    """Prompts `[L, C]` of any lengths -> `[B, longest, C]`, with rows of `padding` in front."""
    longest = max(len(rows) for rows in prompts)
    return torch.stack([torch.cat([padding.expand(longest - len(rows), -1), rows]) for rows in prompts])
