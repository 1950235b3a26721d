"""VoiceCLAP: one embedding of a clip's voice, heard by small predictors and compared with a style in words."""
