"""The MOSS-TTS-Nano runtime reproduces the golden bundle, and the comparison notices when it would not."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from experiments.verify import verify
from tests.checkpoint_files import scale

BUNDLE = Path(__file__).parent / "golden" / "moss_nano"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLE, tmp_path / "bundle"))


def test_every_golden_tensor_is_reproduced() -> None:
    checks = verify("moss-nano", BUNDLE)
    assert [check for check in checks if not check.passed] == []
    inputs = {"ids", "mask", "tf_active", "tf_mask", "greedy_nq", "sampled_seed", "reorder_frames", "reorder_index"}
    assert {check.name for check in checks} == load_file(BUNDLE / "golden.safetensors").keys() - inputs
    assert all(check.compared for check in checks)


# A changed weight, by what factor, and checks that must notice.
DAMAGE = [
    (
        "transformer.h.0.attn.c_attn.weight",
        1.01,
        {"prefill_hidden", "prefill_cache.0.key", "unpadded_prefill_hidden.1"},
    ),
    ("transformer.h.1.attn.c_attn.bias", 1.05, {"prefill_cache.1.value", "tf_cache.1.key"}),
    ("transformer.h.1.mlp.fc_in.weight", 1.01, {"tf_global_hidden", "reorder_global_hidden"}),
    ("transformer.h.1.ln_2.bias", 1.1, {"prefill_layer_hidden.2"}),
    ("local_transformer.h.0.mlp.fc_out.weight", 1.01, {"tf_local_hidden", "tf_audio_logits", "tf_text_logits"}),
    ("local_transformer.ln_f.bias", 2.0, {"tf_text_candidate_logits"}),
    (
        "transformer.ln_f.weight",
        -1.0,
        {"greedy_frames", "greedy_rep13_frames", "greedy_nq_frames", "sampled_frames"},
    ),
]


@pytest.mark.parametrize(("tensor", "factor", "checks"), DAMAGE)
def test_a_changed_weight_fails_the_checks_that_depend_on_it(
    bundle: Path, tensor: str, factor: float, checks: set[str]
) -> None:
    scale(bundle, tensor, factor)
    assert checks <= {record.name for record in verify("moss-nano", bundle) if not record.passed}


def test_one_wrong_code_fails(bundle: Path) -> None:
    golden = load_file(bundle / "golden.safetensors")
    golden["greedy_nq_frames"][1, 2, 3] += 1
    golden["greedy_active"][0, 0] = False
    save_file(golden, bundle / "golden.safetensors")
    failed = [record.name for record in verify("moss-nano", bundle) if not record.passed]
    assert failed == ["greedy_active", "greedy_nq_frames"]
