"""The MOSS-TTS-Nano layout on the loop, the cache, the prompts and the draws of `engine.moss`.

It does not know how the loop chooses codes, nor where the audio goes.
"""

from engine.nano.voice import load_nano

__all__ = ["load_nano"]
