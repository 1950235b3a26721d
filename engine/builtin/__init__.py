"""The voice that ships with the repository. Its architecture is not here: it is a small checkpoint of `engine.moss`."""
