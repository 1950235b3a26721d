"""The towers of the `laion-clap` package, from files on this machine. Knows nothing of hubs: nothing is downloaded.

The package fetches three tokenizers when it is imported, and a text network with one of them again when its model is
made. While it does so those names mean a local folder; the text network is made from its sizes alone, because the
checkpoint holds its weights.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from scorers.clap.checkpoint import fit, read_weights
from scorers.clap.waveform import Waveform, sixteen_bit

AUDIO_MODELS = {96: "HTSAT-tiny", 128: "HTSAT-base"}
"""Architectures by the width of their first layer, which tells them apart."""

FIRST_LAYER = "audio_branch.patch_embed.proj.weight"
TEXT_FILES = ("config.json", "vocab.json", "merges.txt")

_loading = Lock()


class PackageTowers:
    """See `Towers`; `module` is the package's `CLAP_Module`, in evaluation mode."""

    def __init__(self, module: Any, device: torch.device) -> None:
        self._module, self.device = module, device

    def tokens(self, text: str) -> int:
        return len(self._module.tokenize(text)["input_ids"])

    def words(self, text: str) -> Tensor:
        embedding: Tensor = self._module.get_text_embedding([text], use_tensor=True)
        return embedding[0].cpu()

    def sounds(self, audio: Waveform) -> Tensor:
        rows = torch.from_numpy(sixteen_bit(audio))
        heard = [{"waveform": row, "longer": torch.tensor([False])} for row in rows]
        embeddings: Tensor = self._module.model.get_audio_embedding(heard)
        return embeddings.cpu()


def load_towers(model: str, text_model: str | None, device: torch.device) -> PackageTowers:
    """The towers of a checkpoint file.

    Args:
        model: a checkpoint of LAION's training code, HTSAT-tiny or HTSAT-base with RoBERTa, without feature fusion.
        text_model: a folder with RoBERTa's `config.json`, `vocab.json` and `merges.txt`.

    Raises:
        ValueError: a file is missing or wrong, or the package is not installed.
    """
    path, folder = Path(model).expanduser(), _text_folder(text_model)
    if not path.is_file():
        raise ValueError(
            f"model: {model!r} is no file; give a checkpoint of LAION's CLAP, such as one that ends in .pt"
        )
    with _loading, hub_names_mean(folder):
        package = imported_package()
        weights = read_weights(path)
        sizes = _audio_model(weights, path)
        module = package.CLAP_Module(enable_fusion=False, device=str(device), amodel=sizes, tmodel="roberta")
    fit(module.model, weights, path)
    return PackageTowers(module.eval(), device)


def _text_folder(text_model: str | None) -> Path:
    needed = ", ".join(TEXT_FILES)
    if text_model is None:
        raise ValueError(f"text_model: missing; the backend 'laion' needs a folder with RoBERTa's {needed}")
    folder = Path(text_model).expanduser()
    for name in TEXT_FILES:
        if not (folder / name).is_file():
            raise ValueError(f"text_model: {text_model!r} has no {name}; a folder with RoBERTa's {needed} is needed")
    return folder


def _audio_model(weights: Mapping[str, Tensor], path: Path) -> str:
    if FIRST_LAYER not in weights:
        raise ValueError(f"model: {str(path)!r}: {FIRST_LAYER!r} is missing; only HTSAT audio networks are supported")
    width = len(weights[FIRST_LAYER])
    if width not in AUDIO_MODELS:
        known = ", ".join(f"{width} ({name})" for width, name in AUDIO_MODELS.items())
        raise ValueError(f"model: {str(path)!r}: {FIRST_LAYER!r} has width {width}; supported are {known}")
    return AUDIO_MODELS[width]


def imported_package() -> Any:
    """`laion_clap`, with the folder that it appends to the import path taken off again.

    It imports its own parts as `clap_module`, by way of that folder: a module of this name elsewhere would come first.
    """
    before = list(sys.path)
    try:
        import laion_clap
    finally:
        sys.path[:] = before
    home, parts = Path(laion_clap.__file__).parent, Path(sys.modules["clap_module"].__file__ or "")
    if home not in parts.parents:
        raise ValueError(f"laion-clap: {parts} stands where it expects its own 'clap_module'; take it off the path")
    return laion_clap


@contextmanager
def hub_names_mean(folder: Path) -> Iterator[None]:
    """Let the package find what it asks a hub for; everything else is loaded as ever."""
    from transformers import BartTokenizer, BertTokenizer, RobertaConfig, RobertaModel, RobertaTokenizer

    tokenizer = RobertaTokenizer.from_pretrained(str(folder), local_files_only=True)

    def random_network() -> Any:
        return RobertaModel(RobertaConfig.from_pretrained(str(folder), local_files_only=True))

    with ExitStack() as changed:
        # Two tokenizers are for text networks that none of the published checkpoints have.
        for kind, name, local in (
            (BertTokenizer, "bert-base-uncased", lambda: None),
            (BartTokenizer, "facebook/bart-base", lambda: None),
            (RobertaTokenizer, "roberta-base", lambda: tokenizer),
            (RobertaModel, "roberta-base", random_network),
        ):
            changed.enter_context(_answered(kind, name, local))
        yield


@contextmanager
def _answered(kind: Any, name: str, local: Callable[[], Any]) -> Iterator[None]:
    """`kind.from_pretrained(name)` is `local()` for a while."""
    ordinary, own = kind.from_pretrained, vars(kind).get("from_pretrained")

    def from_pretrained(asked: Any, *arguments: Any, **options: Any) -> Any:
        return local() if asked == name else ordinary(asked, *arguments, **options)

    kind.from_pretrained = staticmethod(from_pretrained)
    try:
        yield
    finally:
        if own is None:
            del kind.from_pretrained
        else:
            kind.from_pretrained = own
