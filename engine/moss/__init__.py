"""Our torch runtime of the MOSS-TTS-Local-Transformer layout: global decoder, depth decoder, sampling.

It does not know where the audio goes: a codec turns its frames into sound.
"""
