"""What to speak in a study: prompt files of several formats, and the two sets that come along.

Knows nothing of engines: a prompt is the part of a request that a file can hold.
"""

from experiments.prompts.files import PROMPT_SETS, Prompt, PromptError, read_prompts

__all__ = ["PROMPT_SETS", "Prompt", "PromptError", "read_prompts"]
