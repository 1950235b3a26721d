"""The runtime reproduces the golden bundle, and the comparison notices when it would not."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments.verify import KINDS, verify
from experiments.verify.compare import compare
from tests.checkpoint_files import scale

BUNDLE = Path(__file__).parent / "golden" / "moss_local"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLE, tmp_path / "bundle"))


def test_every_golden_tensor_is_reproduced() -> None:
    checks = verify("moss", BUNDLE)
    assert [check for check in checks if not check.passed] == []
    inputs = {"ids", "mask", "cfg_ids", "cfg_mask", "cfg0_scale", "cfg1_scale", "tf_active", "tf_mask", "tf_rows"}
    inputs |= {"samp_history", "samp_logits", "samp_params", "sampled_seed", "sampled_text"}
    inputs |= {"reorder_frames", "reorder_index", *(f"greedy_start_length.{row}" for row in range(3))}
    assert {check.name for check in checks} == load_file(BUNDLE / "golden.safetensors").keys() - inputs
    assert all(check.compared for check in checks)


# A changed weight, by what factor, and checks that must notice.
DAMAGE = [
    ("transformer.layers.0.self_attn.q_norm.weight", 1.01, {"prefill_hidden", "unpadded_prefill_hidden.1"}),
    ("transformer.layers.1.self_attn.k_norm.weight", 1.01, {"prefill_cache.1.key", "tf_cache.1.key"}),
    ("transformer.layers.1.mlp.gate_proj.weight", 1.01, {"tf_global_hidden", "reorder_global_hidden"}),
    ("local_transformer.h.0.attn.c_attn.weight", 1.01, {"tf_local_hidden", "tf_audio_logits"}),
    ("local_text_lm_head.weight", 1.01, {"tf_text_logits", "cfg0_text_logits_cond"}),
    ("transformer.norm.weight", -1.0, {"greedy_frames", "greedy_rep13_frames", "cfg1_frames", "sampled_frames"}),
]


@pytest.mark.parametrize(("tensor", "factor", "checks"), DAMAGE)
def test_a_changed_weight_fails_the_checks_that_depend_on_it(
    bundle: Path, tensor: str, factor: float, checks: set[str]
) -> None:
    scale(bundle, tensor, factor)
    assert checks <= {record.name for record in verify("moss", bundle) if not record.passed}


def test_changed_golden_values_fail_and_missing_ones_are_named(bundle: Path) -> None:
    golden = load_file(bundle / "golden.safetensors")
    golden["greedy_frames"][2, 1, 5] += 1
    golden["samp_probs"][5, 1] = golden["samp_probs"][5, 2]
    del golden["cfg1_frames"]
    save_file(golden, bundle / "golden.safetensors")
    with pytest.raises(ValueError, match="tensor cfg1_frames is missing"):
        verify("moss", bundle)
    golden["cfg1_frames"] = load_file(BUNDLE / "golden.safetensors")["cfg1_frames"]
    save_file(golden, bundle / "golden.safetensors")
    assert [record.name for record in verify("moss", bundle) if not record.passed] == ["greedy_frames", "samp_probs"]


def test_what_cannot_be_read_is_named(bundle: Path) -> None:
    with pytest.raises(ValueError, match=f"'mos' is unknown; known are {', '.join(sorted(KINDS))}"):
        verify("mos", bundle)
    with pytest.raises(ValueError, match="is not a folder"):
        verify("moss", bundle / "nowhere")
    (bundle / "golden.safetensors").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"golden\.safetensors is truncated"):
        verify("moss", bundle)
    (bundle / "golden.safetensors").unlink()
    with pytest.raises(ValueError, match=r"golden\.safetensors does not exist"):
        verify("moss", bundle)


def test_comparison_rules() -> None:
    golden = torch.tensor([1.0, -torch.inf, 100.0])
    assert compare("x", torch.tensor([1.00015, -torch.inf, 100.009]), golden).passed
    assert not compare("x", torch.tensor([1.00025, -torch.inf, 100.0]), golden).passed
    assert not compare("x", torch.tensor([1.0, -1e9, 100.0]), golden).passed
    assert not compare("x", torch.tensor([torch.nan, -torch.inf, 100.0]), golden).passed
    assert not compare("x", golden[:2], golden).passed
    assert compare("x", torch.tensor([1, 9]), torch.tensor([1, 2]), torch.tensor([True, False])).passed
    assert not compare("x", torch.tensor([1, 9]), torch.tensor([1, 2])).passed
