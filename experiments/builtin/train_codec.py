"""Stage `codec`: train encoder, quantiser and decoder; freeze the codes midway; go on with the decoder alone.

Freezing early lets the language model train on final tokens while the decoder still learns to read them. The decoder's
residual input is dropped often and its tokens are jittered, since at run time they are samples of a language model. It
does not measure intelligibility; `resynthesis.py` does.
"""

import argparse
import copy
import itertools
import logging
import math
import time
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from codec.builtin.network import Attend, Decoder, DecoderConfig
from experiments.builtin.codec_batches import Batch, damaged, draw, kept_residual, losses, random_frames, total
from experiments.builtin.encoder import Encoder, Quantizer
from experiments.builtin.tokens import Speech, load_speech
from experiments.builtin.whole import written_whole

LOG = logging.getLogger(__name__)
SEED = 20
PEAK_RATE, WARM_STEPS = 1.5e-3, 60
QUANTIZE_AFTER = 200  # steps
AVERAGE_DECAY = 0.998
REPORT_EVERY = 100


class CodecTraining(nn.Module):
    """Encoder, quantiser and decoder, and the running average of the decoder's weights that is shipped."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config.latent)
        self.quantizer = Quantizer(config)
        self.decoder = Decoder(config)
        self.average = copy.deepcopy(self.decoder).requires_grad_(False)

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Move the average towards the decoder; it takes the quantiser's codebooks as they are."""
        decay = min(AVERAGE_DECAY, (step + 1) / (step + 20))
        for slow, fast in zip(self.average.parameters(), self.decoder.parameters(), strict=True):
            slow.lerp_(fast, 1.0 - decay)
        for decoder in (self.decoder, self.average):
            decoder.codebooks.copy_(self.quantizer.codebooks)
        self.average.mean.copy_(self.decoder.mean)
        self.average.deviation.copy_(self.decoder.deviation)


def windowed_attention(length: int, window: int) -> Attend:
    """Causal attention over the last `window` positions of a whole sequence."""
    place = torch.arange(length)
    gap = place[:, None] - place[None]
    visible = (gap >= 0) & (gap < window)

    def attend(_: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        # Spelled out: on a CPU this is three times as fast as the fused kernel for windows as short as these.
        scores = (query @ key.transpose(-1, -2)).float() * query.shape[-1] ** -0.5
        mixed: Tensor = scores.masked_fill(~visible, -torch.inf).softmax(-1).to(value.dtype) @ value
        return mixed

    return attend


def whole(decoder: Decoder, semantic: Tensor, residual: Tensor) -> Tensor:
    """Parameters [R, 8 T, 106] of whole utterances from their first frame on."""
    length = semantic.shape[1]
    attend = windowed_attention(length, decoder.config.window)
    out, _ = decoder(semantic, residual, decoder.memory(semantic.shape[0]), torch.arange(length), attend)
    return out  # type: ignore[no-any-return]


def set_scales(model: CodecTraining, speech: Speech) -> None:
    """Means and deviations of inputs and outputs, from the first hour."""
    part = slice(0, 360_000)
    voiced = speech.voiced[part] > 0
    pitch = speech.log_pitch[part].float()
    features = torch.cat([speech.mel[part].float(), (pitch * voiced)[:, None], voiced[:, None].float()], 1)
    model.encoder.mean.copy_(features.mean(0))
    model.encoder.deviation.copy_(features.std(0) + 1e-3)
    columns = (speech.harmonic[part].float()[voiced], speech.noise[part].float(), pitch[voiced][:, None])
    half = torch.full((1,), 0.5)
    model.decoder.mean.copy_(torch.cat([*(column.mean(0) for column in columns), half]))
    model.decoder.deviation.copy_(torch.cat([*(column.std(0) for column in columns), half]))


class Run:
    """A training run that can be stopped and taken up again."""

    def __init__(self, work: Path, minutes: float, freeze: float, speech: Speech, development: Speech) -> None:
        self.work, self.minutes, self.freeze = work, minutes, freeze
        self.speech, self.development = speech, development
        self.config = DecoderConfig()
        self.model = CodecTraining(self.config)
        set_scales(self.model, speech)
        self.codes: Tensor | None = None  # int64 [F, books] once frozen
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.01)
        self.step, self.spent = 0, 0.0

    @property
    def checkpoint(self) -> Path:
        """Where the state of the run is kept."""
        return self.work / "codec.pt"

    def save(self) -> None:
        """Write the checkpoint and the decoder that would be shipped, each whole or not at all."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "spent": self.spent,
            "frozen": self.codes is not None,
        }
        with written_whole(self.checkpoint) as partial:
            torch.save(state, partial)
        decoder = {name: tensor.contiguous() for name, tensor in self.model.average.state_dict().items()}
        with written_whole(self.work / "codec.safetensors") as partial:
            save_file(decoder, str(partial))

    def resume(self) -> None:
        """Take up the checkpoint, if there is one."""
        if self.checkpoint.exists():
            state = torch.load(self.checkpoint, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.spent = state["step"], state["spent"]
            if state["frozen"]:
                self.codes = encode(self.model, self.speech)

    def train(self) -> None:
        """Until the minutes are spent."""
        began = time.monotonic() - self.spent
        while self.spent < self.minutes * 60.0:
            if self.codes is None and self.spent >= self.freeze * 60.0:
                self._freeze()
            rate = 0.5 * (1.0 + math.cos(math.pi * self.spent / (self.minutes * 60.0)))
            for group in self.optimizer.param_groups:
                group["lr"] = PEAK_RATE * min(1.0, (self.step + 1) / WARM_STEPS) * (rate * 0.98 + 0.02)
            parts = self._advance()
            self.model.follow(self.step)
            self.step += 1
            self.spent = time.monotonic() - began
            if self.step % REPORT_EVERY == 0:
                self._report(parts)
            if self.step % (5 * REPORT_EVERY) == 0:
                self.save()
        self.save()

    def _advance(self) -> dict[str, Tensor]:
        if self.step == QUANTIZE_AFTER and self.codes is None:
            with torch.no_grad():
                draws = [draw(self.speech, random_frames(self.speech)).features for _ in range(16)]
                self.model.quantizer.start(torch.cat([self.model.encoder(x).flatten(0, 1) for x in draws]))
        batch = draw(self.speech, random_frames(self.speech))
        with torch.autocast("cpu", torch.bfloat16):
            words, pull = self._words(batch)
            out = whole(self.model.decoder, damaged(batch.semantic, self.config), kept_residual(words))
        parts = losses(out, batch)
        self.optimizer.zero_grad()
        torch.autograd.backward(total(parts) + pull)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return parts

    def _words(self, batch: Batch) -> tuple[list[Tensor], Tensor]:
        """Codewords of every book, with a straight-through gradient while the encoder learns; the commitment loss."""
        if self.codes is not None:
            codes = self.codes[batch.frames]
            books = range(self.config.residual_books)
            return [F.embedding(codes[..., b], self.model.quantizer.codebooks[b]) for b in books], torch.zeros(())
        latents = self.model.encoder(batch.features)
        if self.step < QUANTIZE_AFTER:
            return [latents, torch.zeros_like(latents)], torch.zeros(())
        flat = latents.flatten(0, 1)
        words, _ = self.model.quantizer(flat, learn=True)
        shaped = [word.view_as(latents) for word in words]
        error = latents - torch.stack(shaped).sum(0)
        through = latents - latents.detach()
        return [shaped[0] + through, *shaped[1:]], 0.25 * error.square().mean()

    def _freeze(self) -> None:
        began = time.monotonic()
        self.codes = encode(self.model, self.speech)
        write_tokens(self.speech, self.codes, self.work / "tokens.safetensors")
        for name in ("heldout", "devset"):
            speech = load_speech([self.work / "speech" / f"{name}.safetensors"], self.config)
            write_tokens(speech, encode(self.model, speech), self.work / f"{name}_tokens.safetensors")
            texts = (self.work / "speech" / f"{name}.jsonl").read_text(encoding="utf-8")
            (self.work / f"{name}.jsonl").write_text(texts, encoding="utf-8")
        for parameter in self.model.encoder.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        self.save()
        (self.work / "TOKENS_READY").write_text(f"step {self.step}\n", encoding="utf-8")
        torch.set_num_threads(1)
        LOG.info("codes frozen at step %d, in %.0f s; one thread from here", self.step, time.monotonic() - began)

    @torch.no_grad()
    def _report(self, parts: dict[str, Tensor]) -> None:
        speech, config = self.development, self.config
        batch = draw(speech, torch.arange(len(speech.semantic))[None])
        words, codes = self.model.quantizer(self.model.encoder(batch.features)[0], learn=False)
        with_books = torch.stack(words).sum(0)[None]
        tested = {}
        for name, latent in (("with", with_books), ("without", torch.zeros_like(with_books))):
            errors = losses(whole(self.model.average, batch.semantic, latent), batch)
            tested[name] = {key: round(float(value), 3) for key, value in errors.items()}
        used = [len(codes[:, book].unique()) for book in range(config.residual_books)]
        LOG.info(
            "step %d, %.0f s, loss %.3f, development %s, codes used %s",
            *(self.step, self.spent, float(total(parts)), tested, used),
        )


@torch.no_grad()
def encode(model: CodecTraining, speech: Speech) -> Tensor:
    """Residual codes int64 [F, books] of every utterance, each encoded alone."""
    out = []
    for first, last in _spans(speech.frame_offsets):
        latents = model.encoder(draw(speech, torch.arange(first, last)[None]).features)[0]
        out.append(model.quantizer(latents, learn=False)[1])
    return torch.cat(out)


def _spans(offsets: Tensor) -> Iterable[tuple[int, int]]:
    return itertools.pairwise(offsets.tolist())


def write_tokens(speech: Speech, residual: Tensor, path: Path) -> None:
    """The language model's training data: codes, and the symbols with the hop at which each one ends."""
    tensors = {
        "codes": torch.cat([speech.semantic, residual], 1).to(torch.int16),
        "frame_offsets": speech.frame_offsets,
        "phonemes": speech.symbols,
        "phoneme_offsets": speech.symbol_offsets,
        "phoneme_ends": speech.symbol_ends,
    }
    with written_whole(path) as partial:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(partial))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/builtin"))
    parser.add_argument("--minutes", type=float, default=50.0)
    parser.add_argument("--freeze", type=float, default=16.0, help="minutes after which the codes are frozen")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(SEED)
    folder = arguments.work / "speech"
    shards = sorted(folder.glob("shard-*.safetensors"))
    if not shards:
        raise SystemExit(f"codec: no shards in {folder}; run `python -m experiments.builtin.speech` first")
    config = DecoderConfig()
    speech, development = load_speech(shards, config), load_speech([folder / "devset.safetensors"], config)
    LOG.info("%d utterances, %.2f hours", len(speech.frame_offsets) - 1, len(speech.semantic) * 0.08 / 3600)
    run = Run(arguments.work, arguments.minutes, arguments.freeze, speech, development)
    run.resume()
    run.train()


if __name__ == "__main__":
    main()
