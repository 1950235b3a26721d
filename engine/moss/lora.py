"""Low-rank adapters in the format of PEFT, to be merged into weights as they are loaded.

A weight W becomes W + scale * B A (Hu et al., LoRA, 2021), computed in float32; scale is alpha / r, or alpha / sqrt(r)
under rank stabilisation. It knows names and shapes; it does not know what the weights do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from codec.checkpoints.errors import CheckpointError, ConfigError
from codec.checkpoints.fields import Fields
from codec.checkpoints.tensors import open_file

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_PREFIX = "base_model.model."
_LOW_RANK = re.compile(r"(?P<module>.+)\.lora_(?P<kind>embedding_)?(?P<side>[AB])(\.\w+)?(\.weight)?")
_WHOLE = re.compile(r"(?P<module>.+?)(\.modules_to_save\.\w+|\.base_layer)?\.(?P<parameter>weight|bias)")

# What the files themselves show, or what matters in training alone.
_WITHOUT_EFFECT = {
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "megatron_core",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_rslora",
}
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")


@dataclass(frozen=True)
class Adapter:
    """What a fine-tuning run changed, by names of the weights that it changed.

    Attributes:
        folder: where it was read.
        base, revision: the checkpoint that it was trained on, as its config names it; None if it does not.
        low_rank: A `[r, in]`, B `[out, r]` and the scale of each changed weight `[out, in]`.
        whole: weights that are replaced; a low-rank change of the same weight comes on top.
    """

    folder: Path
    base: str | None
    revision: str | None
    low_rank: Mapping[str, tuple[Tensor, Tensor, float]]
    whole: Mapping[str, Tensor]

    @classmethod
    def load(cls, folder: Path) -> Adapter:
        """Read `adapter_config.json` and `adapter_model.safetensors`.

        Raises:
            ConfigError: a field is malformed, or asks for something that is not implemented.
            CheckpointError: the weights are missing, damaged, or do not fit the config.
        """
        config = _read_config(folder / CONFIG)
        low_rank: dict[str, dict[str, Tensor]] = {}
        whole: dict[str, Tensor] = {}
        with ExitStack() as open_files:
            for name, stored in open_file(folder / WEIGHTS, open_files).items():
                tensor = stored.read(stored.shape).clone()
                plain = name.removeprefix(_PREFIX)
                if found := _LOW_RANK.fullmatch(plain):
                    # An embedding's change is the transpose of B A: the two factors trade places.
                    side = {"A": "B", "B": "A"}[found["side"]] if found["kind"] else found["side"]
                    low_rank.setdefault(found["module"], {})[side] = tensor.T if found["kind"] else tensor
                elif found := _WHOLE.fullmatch(plain):
                    whole[f"{found['module']}.{found['parameter']}"] = tensor
                else:
                    raise CheckpointError(
                        f"{folder / WEIGHTS}: {name} is no part of a LoRA adapter; only lora_A, lora_B, "
                        "lora_embedding_A, lora_embedding_B and whole weights are implemented"
                    )
        return cls(
            folder=folder,
            base=config.values.get("base_model_name_or_path"),
            revision=config.values.get("revision"),
            low_rank={f"{name}.weight": _factors(folder, config, name, part) for name, part in low_rank.items()},
            whole=whole,
        )

    def changes(self, *names: str) -> bool:
        """Whether any of these weights is another one than in the base."""
        return any(name in self.low_rank or name in self.whole for name in names)

    def check(self, shapes: Mapping[str, list[int]]) -> None:
        """Raise `CheckpointError` for the first change that fits no weight of these shapes."""
        changes = {name: list(weight.shape) for name, weight in self.whole.items()}
        changes |= {name: [b.shape[0], a.shape[1]] for name, (a, b, _) in self.low_rank.items()}
        for name, shape in changes.items():
            if shapes.get(name) != shape:
                base = f"has {shapes[name]}" if name in shapes else "has no such weight"
                raise CheckpointError(
                    f"{self.folder / WEIGHTS}: the adapter changes {name} of shape {shape}, the checkpoint {base}: "
                    "give the base that the adapter was trained on"
                )

    def merged(self, name: str, weight: Tensor) -> Tensor:
        """The weight with its change, float32 on the same device; the weight itself where nothing changes."""
        if name in self.whole:
            weight = self.whole[name].to(weight.device)
        if name not in self.low_rank:
            return weight
        a, b, scale = self.low_rank[name]
        return weight.float() + scale * (b.to(weight.device).float() @ a.to(weight.device).float())


def find_adapter(folder: Path) -> Path | None:
    """The folder that holds an adapter: this one, or `adapter/` in it."""
    places = (folder, folder / "adapter")
    return next((place for place in places if (place / CONFIG).is_file()), None)


def _read_config(path: Path) -> Fields:
    fields = Fields.read(path, "an adapter needs it beside its weights")
    fields.one_of("peft_type", "LORA")
    fields.one_of("bias", "none", default="none")
    if fields.values.get("init_lora_weights") not in _PLAIN_STARTS:
        raise ConfigError(
            f"{path}: init_lora_weights is {fields.values['init_lora_weights']!r}, which also changed the base "
            "weights: convert the adapter to a plain one when saving it"
        )
    for name, value in fields.values.items():
        if value and name not in _WITHOUT_EFFECT and name != "bias":
            raise fields.error(name, "not implemented; merge the adapter with PEFT instead")
    return fields


def _factors(folder: Path, config: Fields, module: str, parts: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, float]:
    ranks = _by_pattern(config, "rank_pattern", module) or [config.positive("r")]
    alphas = _by_pattern(config, "alpha_pattern", module) or [config.positive("lora_alpha")]
    # PEFT sorts patterns when it writes them: which of several came first is seen by the weights alone.
    if parts.keys() != {"A", "B"} or not parts["A"].shape[0] == parts["B"].shape[1] in ranks:
        shapes = {f"lora_{side}": list(parts[side].shape) for side in sorted(parts)}
        raise CheckpointError(
            f"{folder / WEIGHTS}: {module} has {shapes}; {CONFIG} asks for lora_A [{ranks[0]:g}, in] and "
            f"lora_B [out, {ranks[0]:g}]: download the adapter again"
        )
    rank = len(parts["A"])
    return parts["A"], parts["B"], alphas[0] / (rank**0.5 if config.values.get("use_rslora") else rank)


def _by_pattern(config: Fields, field: str, module: str) -> list[float]:
    """Values that the config sets apart for modules whose name ends in a pattern, in the order of the file."""
    patterns = config.nested(field, default={})
    return [patterns.positive(name) for name in patterns.values if re.fullmatch(rf"(.*\.)?({name})", module)]
