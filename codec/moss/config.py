"""Reads the `config.json` of a MOSS-Audio-Tokenizer: first version (24 kHz mono), second (48 kHz stereo) or Nano.

Every field on which the arithmetic depends is read; values that are not implemented are refused by name. It does not
know the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from codec.checkpoints.errors import ConfigError
from codec.checkpoints.fields import Fields

MODEL_TYPES = ("moss-audio-tokenizer", "speech_tokenizer")
_QUANTIZERS = ("rlfq", "random_prefix_rlfq")  # the second is another training of the same arithmetic


@dataclass(frozen=True)
class PatchConfig:
    """`size` neighbours in time become channels of one position, or the other way round."""

    size: int


@dataclass(frozen=True)
class TransformerConfig:
    """A transformer between two linear projections.

    Attributes:
        context: positions that a query sees, itself among them.
        steps: positions in a codec frame.
        bare: no projection where its two sizes agree, as in the first version.
    """

    inputs: int
    outputs: int
    width: int
    heads: int
    layers: int
    feed_forward: int
    max_period: float
    context: int
    steps: int
    bare: bool

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads


ModuleConfig = PatchConfig | TransformerConfig


@dataclass(frozen=True)
class QuantizerConfig:
    """`books` codebooks of `size` vectors of `code_width`, between vectors of `inputs`, `width` and `outputs`."""

    inputs: int
    width: int
    outputs: int
    books: int
    size: int
    code_width: int


@dataclass(frozen=True)
class MossCodecConfig:
    """What the network needs to know. `hop` is in samples of one channel; channels are interleaved inside."""

    sample_rate: int
    hop: int
    channels: int
    encoder: tuple[ModuleConfig, ...]
    decoder: tuple[ModuleConfig, ...]
    quantizer: QuantizerConfig
    compute_dtype: str

    @property
    def frame_rate(self) -> Fraction:
        """Frames a second."""
        return Fraction(self.sample_rate, self.hop)

    @classmethod
    def load(cls, path: Path) -> MossCodecConfig:
        """Read a `config.json`; `ConfigError` names the file, the field, its value and what is needed."""
        top = Fields.read(path, "give a codec folder, with config.json beside its weights")
        top.one_of("model_type", *MODEL_TYPES)
        rate, hop = _sample_rate(top), top.size("downsample_rate")
        channels = top.size("number_channels", default=1)
        if channels > 2:
            raise top.error("number_channels", "1 or 2 is needed")
        if channels == 2:
            top.one_of("enable_channel_interleave", True, default=True)
        quantizer = _read_quantizer(top)
        reader = _ModuleReader(
            rate=Fraction(rate, hop),
            steps=hop * channels,
            # Only the second version has the field, and some copies of the first carry the second's model type.
            first_version=top.values.get("number_channels") is None,
            seconds=_shared_context(top),
        )
        return cls(
            sample_rate=rate,
            hop=hop,
            channels=channels,
            encoder=reader.encoder(top, ends=quantizer.inputs),
            decoder=reader.decoder(top, begins=quantizer.outputs),
            quantizer=quantizer,
            compute_dtype=top.one_of("compute_dtype", "fp32", "bf16", default="fp32"),
        )


def _sample_rate(top: Fields) -> int:
    names = [name for name in ("sampling_rate", "sample_rate") if top.values.get(name) is not None]
    rates = {top.size(name) for name in names or ["sampling_rate"]}
    if len(rates) > 1:
        raise top.error("sample_rate", f"sampling_rate is {top.values['sampling_rate']}, and the two must be equal")
    return rates.pop()


def _read_quantizer(top: Fields) -> QuantizerConfig:
    fields = top.nested("quantizer_kwargs")
    if fields.values.get("quantizer_type") is None:
        top.one_of("quantizer_type", *_QUANTIZERS, default="rlfq")
    else:
        fields.one_of("quantizer_type", *_QUANTIZERS)
    inputs = fields.size("input_dim")
    return QuantizerConfig(
        inputs=inputs,
        width=fields.size("rvq_dim", default=inputs),
        outputs=fields.size("output_dim", default=inputs),
        books=fields.size("num_quantizers"),
        size=fields.size("codebook_size"),
        code_width=fields.size("codebook_dim"),
    )


def _shared_context(top: Fields) -> float:
    """Seconds seen by modules that do not say: the shortest that any module of the encoder sees."""
    usual = top.positive("causal_transformer_context_duration", default=10.0)
    transformers = [part for part in top.objects("encoder_kwargs") if part.values.get("module_type") == "Transformer"]
    return min([part.positive("context_duration", default=usual) for part in transformers], default=usual)


@dataclass(frozen=True)
class _ModuleReader:
    """Follows the number of channels, and of positions in a frame, through a list of modules.

    `rate` is in frames a second, `steps` the interleaved samples of a frame, `seconds` the shared context.
    """

    rate: Fraction
    steps: int
    first_version: bool
    seconds: float

    def encoder(self, top: Fields, ends: int) -> tuple[ModuleConfig, ...]:
        modules: list[ModuleConfig] = []
        width, steps = 1, self.steps
        for fields in top.objects("encoder_kwargs"):
            module = self._module(fields, width, steps)
            if isinstance(module, PatchConfig):
                if steps % module.size:
                    raise fields.error("patch_size", f"it must divide the {steps} positions of a frame at this place")
                width, steps = width * module.size, steps // module.size
            else:
                width = module.outputs
            modules.append(module)
        self._check_end(top, "encoder_kwargs", (width, steps), (ends, 1))
        return tuple(modules)

    def decoder(self, top: Fields, begins: int) -> tuple[ModuleConfig, ...]:
        modules: list[ModuleConfig] = []
        width, steps = begins, 1
        for fields in top.objects("decoder_kwargs"):
            module = self._module(fields, width, steps)
            if isinstance(module, PatchConfig):
                if width % module.size:
                    raise fields.error("patch_size", f"it must divide the {width} channels that arrive")
                width, steps = width // module.size, steps * module.size
            else:
                width = module.outputs
            modules.append(module)
        self._check_end(top, "decoder_kwargs", (width, steps), (1, self.steps))
        return tuple(modules)

    @staticmethod
    def _check_end(top: Fields, name: str, found: Sequence[int], needed: Sequence[int]) -> None:
        if found != needed:
            raise ConfigError(
                f"{top.prefix}{name} ends with {found[0]} channels and {found[1]} positions a frame; "
                f"{needed[0]} and {needed[1]} are needed: config.json is damaged, download it again"
            )

    def _module(self, fields: Fields, width: int, steps: int) -> ModuleConfig:
        if fields.one_of("module_type", "PatchedPretransform", "Transformer") == "PatchedPretransform":
            return PatchConfig(fields.size("patch_size"))
        return self._transformer(fields, width, steps)

    def _transformer(self, fields: Fields, width: int, steps: int) -> TransformerConfig:
        fields.one_of("causal", True)
        fields.one_of("norm", "layer_norm")
        fields.one_of("positional_embedding", "rope")
        fields.one_of("gating", "none", default="none")
        fields.positive("layer_scale")  # where training started; that there are scales at all is what matters
        module = TransformerConfig(
            inputs=fields.size("input_dimension"),
            outputs=fields.size("output_dimension"),
            width=fields.size("d_model"),
            heads=fields.size("num_heads"),
            layers=fields.size("num_layers"),
            feed_forward=fields.size("dim_feedforward"),
            max_period=fields.positive("max_period", default=10_000.0),
            context=self._context(fields, steps),
            steps=steps,
            bare=self.first_version,
        )
        if module.inputs != width:
            raise fields.error("input_dimension", f"{width} channels arrive from the module before it")
        if module.width % (2 * module.heads):
            raise fields.error("d_model", f"it must be an even multiple of num_heads, which is {module.heads}")
        return module

    def _context(self, fields: Fields, steps: int) -> int:
        positions = float(self.rate * steps) * fields.positive("context_duration", default=self.seconds)
        context = int(positions) if self.first_version else round(positions)
        if context < 1:
            raise fields.error("context_duration", "it must be long enough for one position of this module")
        return context
