"""MOSS-Audio-Tokenizer (first version, second version and Nano): decoder streams, and an encoder for references."""

from codec.moss.codec import MossCodec, load_moss_codec
from codec.moss.stream import MossCodecStream

__all__ = ["MossCodec", "MossCodecStream", "load_moss_codec"]
