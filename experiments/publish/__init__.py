"""A site on the Hugging Face hub: in few commits, audio packed, resumable."""
