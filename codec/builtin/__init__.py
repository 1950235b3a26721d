"""The codec of the built-in voice: books that mean something, a causal decoder, harmonic-plus-noise synthesis."""

from codec.builtin.codec import BuiltinCodec, BuiltinCodecStream
from codec.builtin.network import DecoderConfig

__all__ = ["BuiltinCodec", "BuiltinCodecStream", "DecoderConfig"]
