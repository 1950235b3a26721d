"""The MOSS-TTS-Nano layout on the loop, the cache and the draws of `engine.moss`.

It does not know how the loop chooses codes, nor where the audio goes.
"""
