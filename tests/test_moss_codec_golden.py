"""The codec reproduces the golden bundles, and the comparison notices when it would not."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from experiments.cli import run
from experiments.verify import verify
from tests.checkpoint_files import scale

GOLDEN = Path(__file__).parent / "golden"
INPUTS = {
    "moss_codec": {"codes", "lengths", "reorder_after_frames", "reorder_codes", "reorder_index", "stream_chunks"}
    | {f"encode_wav.{row}" for row in range(3)},
    "moss_codec_v1": {"codes", "encode_wav"},
}


@pytest.mark.parametrize("name", INPUTS)
def test_every_golden_tensor_is_reproduced(name: str) -> None:
    """But for the encoder's state, which the reference never used, and for masks that are all true."""
    checks = verify("moss-codec", GOLDEN / name)
    assert [check for check in checks if not check.passed] == []
    assert all(check.compared for check in checks)
    golden = load_file(GOLDEN / name / "golden.safetensors")
    unused = {key for key in golden if key.endswith(".exec_mask") or key.startswith("state_after_9.encoder.")}
    assert golden.keys() - {check.name for check in checks} == INPUTS[name] | unused


# A changed weight, by what factor, and checks that must notice.
DAMAGE = [
    ("moss_codec", "decoder.0.transformer.layers.0.self_attn.in_proj.weight", 1.001, {"full_decode_audio"}),
    ("moss_codec", "decoder.2.transformer.layers.0.ffn.0.weight", 1.01, {"stream_decode_audio", "decoder_stage.2"}),
    ("moss_codec", "decoder.4.transformer.layers.1.layer_scale_1.scale", 1.01, {"reorder_audio", "execmask_audio_c"}),
    ("moss_codec", "decoder.4.output_proj.weight", 1.01, {"ragged_decode_audio", "execmask_audio_b_rows02"}),
    ("moss_codec", "encoder.5.transformer.layers.1.norm2.weight", -1.0, {"encode_hidden", "encode_codes"}),
    ("moss_codec", "quantizer.quantizers.5.codebook.weight", -1.0, {"encode_all_codes"}),
    ("moss_codec", "quantizer.output_proj.bias", 1.1, {"quantizer_embedding"}),
    ("moss_codec_v1", "decoder.2.transformer.layers.0.linear2.weight", 1.01, {"stream1_decode_audio"}),
    ("moss_codec_v1", "encoder.3.transformer.layers.0.self_attn.out_projs.0.weight", -1.0, {"encode_codes"}),
]


@pytest.mark.parametrize(("name", "tensor", "factor", "checks"), DAMAGE)
def test_a_changed_weight_fails_the_checks_that_depend_on_it(
    tmp_path: Path, name: str, tensor: str, factor: float, checks: set[str]
) -> None:
    bundle = Path(shutil.copytree(GOLDEN / name, tmp_path / name))
    scale(bundle, tensor, factor)
    assert checks <= {check.name for check in verify("moss-codec", bundle) if not check.passed}
    assert run(["verify", "moss-codec", str(bundle)]) == 1


def test_the_command_passes_on_the_bundles_themselves() -> None:
    for name in INPUTS:
        assert run(["verify", "moss-codec", str(GOLDEN / name)]) == 0
