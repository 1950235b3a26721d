"""VoiceCLAP: one embedding of a clip's voice, heard by small predictors and compared with a style in words.

`load` makes the head; nothing else here is needed to use it, and importing it loads no weights.
"""

from scorers.voiceclap.scorer import load

__all__ = ["load"]
