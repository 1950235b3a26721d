"""The VoiceCLAP runtime reproduces the golden bundle, and the comparison notices when it would not."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from experiments.verify import verify
from scorers.voiceclap.config import VoiceClapConfig
from scorers.voiceclap.features import fitted, floored, log_mel, log_power, mel_filters, scale_of
from scorers.voiceclap.network import VoiceClap
from scorers.voiceclap.predictors import load_predictors
from tests.checkpoint_files import scale

BUNDLE = Path(__file__).parent / "golden" / "voiceclap_like"


def test_every_golden_tensor_is_reproduced() -> None:
    checks = verify("voiceclap", BUNDLE)
    assert [check for check in checks if not check.passed] == []
    inputs = {"wave.0", "wave.1", "text_ids", "text_mask"}
    assert {check.name for check in checks} == load_file(BUNDLE / "golden.safetensors").keys() - inputs
    assert all(check.compared for check in checks)


# A changed weight, by what factor, and checks that must notice.
DAMAGE = [
    ("audio.encoder.conv1.weight", 1.01, {"encoder_first4.0", "encoder_mean.1"}),
    ("audio.encoder.positional_embedding", 1.01, {"encoder_first4.0"}),
    ("audio.encoder.blocks.0.attn.value.weight", 1.5, {"encoder_first4.0", "audio_embed.0"}),
    ("audio.encoder.blocks.1.mlp.0.weight", 1.1, {"encoder_mean.0", "audio_embed.1"}),
    ("audio.proj.2.weight", -1.0, {"audio_embed.0", "audio_embed_batch", "cosine"}),
    ("text.transformer.encoder.layer.1.attention.self.value.weight", 1.5, {"text_embed"}),
    ("text.transformer.embeddings.position_embeddings.weight", 1.5, {"text_embed", "cosine"}),
    ("text.proj.0.weight", 1.5, {"text_embed"}),
]


@pytest.mark.parametrize(("tensor", "factor", "noticed"), DAMAGE)
def test_a_changed_weight_fails_the_checks_that_depend_on_it(
    tmp_path: Path, tensor: str, factor: float, noticed: set[str]
) -> None:
    bundle = Path(shutil.copytree(BUNDLE, tmp_path / "bundle"))
    scale(bundle, tensor, factor)
    failed = {check.name for check in verify("voiceclap", bundle) if not check.passed}
    assert noticed <= failed
    assert failed.isdisjoint({"log_mel.0", "head.genuineness_head"})
    if tensor.startswith("text."):
        assert "audio_embed.0" not in failed


def test_a_changed_predictor_fails_its_check(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(BUNDLE, tmp_path / "bundle"))
    shutil.copy(bundle / "heads" / "AROU_regression.pt", bundle / "heads" / "genuineness_head.pt")
    assert [check.name for check in verify("voiceclap", bundle) if not check.passed] == ["head.genuineness_head"]
    shutil.rmtree(bundle / "heads")
    with pytest.raises(ValueError, match=r"heads has no \.pt file"):
        verify("voiceclap", bundle)


def test_the_other_mel_scale_would_be_noticed() -> None:
    """Whisper's own filters move the features of the bundle's clips by more than 1: one scale is not as good."""
    golden = load_file(BUNDLE / "golden.safetensors")
    wave = fitted(golden["wave.0"], 480_000)[None]
    expected = golden["log_mel.0"]
    gaps = [
        float((log_mel(wave, mel_filters(scale, 80))[0, :, :320] - expected).abs().max()) for scale in ("htk", "slaney")
    ]
    assert gaps[0] < 1e-5
    assert gaps[1] > 1.0


def test_filters_tell_their_scale() -> None:
    assert scale_of(mel_filters("htk", 80)) == "htk"
    assert scale_of(mel_filters("slaney", 80).bfloat16().float()) == "slaney"
    assert scale_of(mel_filters("slaney", 80) * 1.01) is None


@pytest.mark.parametrize("scale", ["htk", "slaney"])
def test_filters_are_those_of_librosa(scale: str) -> None:
    filters = pytest.importorskip("librosa", reason="needs librosa: pip install librosa").filters
    theirs = torch.from_numpy(filters.mel(sr=16_000, n_fft=400, n_mels=80, htk=scale == "htk"))
    assert float((mel_filters(scale, 80) - theirs).abs().max()) < 1e-8  # type: ignore[arg-type]


def test_a_loud_clip_would_move_its_neighbour_under_the_floor_of_training() -> None:
    """Why scoring gives each clip a floor of its own."""
    filters = mel_filters("htk", 80)
    quiet, loud = torch.randn(2, 16_000) * torch.tensor([[1e-4], [1.0]])
    alone = log_mel(quiet[None], filters)[0]
    assert torch.equal(log_mel(torch.stack([quiet, loud]), filters)[0], alone)
    power = log_power(torch.stack([quiet, loud]), filters)
    assert float((floored(power, power.max())[0] - alone).abs().max()) > 0.1


def test_the_release_has_as_many_numbers_as_its_card_says() -> None:
    """113,170,898 with the stored mel filters and the two numbers of training's similarity."""
    with torch.device("meta"):
        network = VoiceClap(VoiceClapConfig(80, 1500, 768, 12, 12, 768, 384, 1536, 6, 12, 30522, 512, 1e-12, 576))
    stored = sum(tensor.numel() for tensor in network.state_dict().values())
    assert stored + network.mel_filters.numel() + 2 == 113_170_898


def test_predictors_in_float64_by_hand() -> None:
    """GELU by its definition, x * Phi(x): neither ReLU nor the tanh approximation gives these numbers."""
    predictor = load_predictors([BUNDLE / "heads" / "AROU_classification.pt"], 32)[0]
    golden = load_file(BUNDLE / "golden.safetensors")
    part = {name: tensor.double() for name, tensor in predictor.tensors.items()}
    hidden = ((golden["audio_embed_batch"].double() - part["mu"]) / part["sd"]) @ part["f1.weight"].T + part["f1.bias"]
    phi = 0.5 * (1.0 + torch.erf(hidden / 2.0**0.5))
    expected = (hidden * phi) @ part["f2.weight"].T + part["f2.bias"]
    assert float((predictor.outputs(golden["audio_embed_batch"]).double() - expected).abs().max()) < 1e-5
