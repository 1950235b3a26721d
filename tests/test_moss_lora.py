"""Adapters merged at load: W + scale * B A, heads apart from their embeddings, and what is not done said by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from codec.checkpoints.errors import CheckpointError, ConfigError
from engine.moss.checkpoint import load_network, save_network
from engine.moss.lora import Adapter, find_adapter
from engine.moss.network import MossNetwork
from tests.tiny import tiny_moss

ADAPTER = "adapter_model.safetensors"
QUERY, HEAD, EMBEDDING = "transformer.layers.1.self_attn.q_proj", "audio_lm_heads.1", "audio_embeddings.1"
TEXT = "transformer.embed_tokens"
CONFIG: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": ["q_proj"], "bias": "none"}
# What PEFT writes into every config, and what has no effect.
USUAL = {
    "auto_mapping": None,
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "lora_dropout": 0.05,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "qalora_group_size": 16,
    "use_dora": False,
    "loftq_config": {},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_moss(tmp_path / "checkpoint")


def write(folder: Path, tensors: dict[str, Tensor], **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | USUAL | config))
    save_file({f"base_model.model.{name}": tensor for name, tensor in tensors.items()}, folder / ADAPTER)
    return folder


def pair(module: str, outputs: int, inputs: int, rank: int = 4) -> dict[str, Tensor]:
    a, b = torch.randn(rank, inputs), torch.randn(outputs, rank)
    return {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}


def adapted(base: Path, adapter: Path, dtype: torch.dtype = torch.float32) -> MossNetwork:
    return load_network(base, dtype, adapter=Adapter.load(adapter))


def change(tensors: dict[str, Tensor], module: str, x: Tensor, scale: float) -> Tensor:
    """scale * B(A x), the adapter as a branch beside the weight."""
    return scale * (x @ tensors[f"{module}.lora_A.weight"].T @ tensors[f"{module}.lora_B.weight"].T)


def differing(left: MossNetwork, right: MossNetwork) -> set[str]:
    weights = right.state_dict()
    return {name for name, weight in left.state_dict().items() if not torch.equal(weight, weights[name])}


@pytest.mark.parametrize(
    ("fields", "rank", "scale"),
    [
        ({}, 4, 1.5),
        ({"use_rslora": True}, 4, 3.0),
        ({"rank_pattern": {"q_proj": 2}}, 2, 3.0),
        ({"rank_pattern": {r"layers\.0\.self_attn.q_proj": 2}}, 4, 1.5),
        ({"rank_pattern": {r"layers\.1\.self_attn.q_proj": 3, "q_proj": 2}}, 2, 3.0),
        ({"alpha_pattern": {r"layers\.1\.self_attn\.q_proj": 8, "q_proj": 1}}, 4, 2.0),
        ({"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 8}, "use_rslora": True}, 2, 8 / 2**0.5),
    ],
)
def test_a_merged_layer_is_the_layer_and_its_branch(
    folder: Path, tmp_path: Path, fields: dict[str, Any], rank: int, scale: float
) -> None:
    tensors = pair(QUERY, 32, 32, rank)
    base, network = load_network(folder), adapted(folder, write(tmp_path / "lora", tensors, **fields))
    x = torch.randn(5, 32)
    plain, merged = (net.transformer.layers[1].self_attn.q_proj(x) for net in (base, network))
    torch.testing.assert_close(merged, plain + change(tensors, QUERY, x, scale), rtol=1e-4, atol=1e-4)
    assert differing(network, base) == {f"{QUERY}.weight"}
    assert network.config.tied


def test_the_merge_is_made_in_float32_and_rounded_once(folder: Path, tmp_path: Path) -> None:
    tensors = pair(QUERY, 32, 32)
    save_network(load_network(folder), tmp_path / "half", dtype=torch.bfloat16)
    adapter = write(tmp_path / "lora", {name: tensor.bfloat16() for name, tensor in tensors.items()})
    a, b = (tensor.bfloat16().float() for tensor in tensors.values())
    base = load_network(tmp_path / "half").state_dict()[f"{QUERY}.weight"]
    merged = adapted(tmp_path / "half", adapter, torch.bfloat16).state_dict()[f"{QUERY}.weight"]
    assert torch.equal(merged, (base + 1.5 * (b @ a)).bfloat16())


def test_an_adapted_head_leaves_the_input_embedding_alone(folder: Path, tmp_path: Path) -> None:
    tensors = pair(HEAD, 24, 32) | pair("text_lm_head", 192, 32)
    base, network = load_network(folder), adapted(folder, write(tmp_path / "lora", tensors))
    assert differing(network, base) == {f"{HEAD}.weight", "text_lm_head.weight"}
    rows = torch.randint(0, 16, (7, 4))
    assert torch.equal(network.embed(rows), base.embed(rows))
    x = torch.randn(3, 32)
    expected = base.audio_lm_heads[1](x) + change(tensors, HEAD, x, 1.5)
    torch.testing.assert_close(network.audio_lm_heads[1](x), expected, rtol=1e-4, atol=1e-4)
    network.tie()
    assert differing(network, base), "tying again would undo the adapter"
    save_network(network, tmp_path / "merged")
    assert not differing(load_network(tmp_path / "merged"), network)


@pytest.mark.parametrize(("module", "rows"), [(EMBEDDING, 24), (TEXT, 192)])
def test_an_adapted_embedding_leaves_its_head_alone(folder: Path, tmp_path: Path, module: str, rows: int) -> None:
    a, b = torch.randn(4, rows), torch.randn(32, 4)
    write(tmp_path / "lora", {f"{module}.lora_embedding_A": a, f"{module}.lora_embedding_B": b})
    base, network = load_network(folder), adapted(folder, tmp_path / "lora")
    assert differing(network, base) == {f"{module}.weight"}
    weight = base.state_dict()[f"{module}.weight"]
    torch.testing.assert_close(network.state_dict()[f"{module}.weight"], weight + 1.5 * (b @ a).T)


def test_whole_modules_replace_those_of_the_base(folder: Path, tmp_path: Path) -> None:
    norm, bias = torch.randn(32), torch.randn(32)
    tensors = {"transformer.norm.weight": norm, "local_transformer.ln_f.modules_to_save.default.bias": bias}
    adapter = write(tmp_path / "lora", tensors | pair(QUERY, 32, 32), modules_to_save=["norm", "ln_f"])
    weights = adapted(folder, adapter).state_dict()
    assert torch.equal(weights["transformer.norm.weight"], norm)
    assert torch.equal(weights["local_transformer.ln_f.bias"], bias)


def test_an_adapter_is_found_in_the_folder_or_below(folder: Path) -> None:
    assert find_adapter(folder) is None
    below = write(folder / "adapter", pair(QUERY, 32, 32))
    assert find_adapter(folder) == below
    assert find_adapter(below) == below


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"bias": "lora_only"}, "bias is 'lora_only'"),
        ({"use_dora": True}, "use_dora is True: not implemented"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is True"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"target_parameters": ["x"]}, "target_parameters"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa', which also changed the base"),
        ({"r": None}, "r is missing"),
        ({"alpha_pattern": {"q_proj": "8"}}, "alpha_pattern.q_proj is '8'"),
    ],
)
def test_fields_that_are_not_implemented_are_refused_by_name(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    write(tmp_path / "lora", pair(QUERY, 32, 32), **fields)
    with pytest.raises(ConfigError, match=rf"adapter_config\.json: {message}"):
        Adapter.load(tmp_path / "lora")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (pair(QUERY, 32, 32, rank=3), r"q_proj has .*asks for lora_A \[4, in\] and lora_B \[out, 4\]"),
        ({f"{QUERY}.lora_A.weight": torch.ones(4, 32)}, r"q_proj has {'lora_A': \[4, 32\]}; "),
        ({f"{QUERY}.lora_magnitude_vector": torch.ones(4)}, "lora_magnitude_vector is no part of a LoRA adapter"),
        (pair(QUERY, 32, 64), r"changes .*q_proj\.weight of shape \[32, 64\], the checkpoint has \[32, 32\]"),
        (pair("transformer.layers.7.mlp.up_proj", 64, 32), r"layers\.7.* the checkpoint has no such weight"),
        ({"transformer.norm.weight": torch.ones(16)}, r"norm\.weight of shape \[16\], the checkpoint has \[32\]"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    folder: Path, tmp_path: Path, tensors: dict[str, Tensor], message: str
) -> None:
    write(tmp_path / "lora", tensors)
    with pytest.raises(CheckpointError, match=message):
        adapted(folder, tmp_path / "lora")


def test_an_adapter_without_its_weights_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "lora", pair(QUERY, 32, 32)) / ADAPTER
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors is truncated"):
        Adapter.load(tmp_path / "lora")
    path.rename(path.with_suffix(".bin"))
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors does not exist: .*adapter_model\.bin"):
        Adapter.load(tmp_path / "lora")
