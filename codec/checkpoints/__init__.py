"""Reads checkpoint folders of published networks: where they are, their settings and their weights.

No code from a checkpoint is run. It does not know any network.
"""
