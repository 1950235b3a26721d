"""Checks the chunks that a codec is given, before anything is decoded. It does not know what a code sounds like."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from search.protocols import Chunk


def checked_codes(chunk: Chunk, rows: int, book_sizes: Sequence[int], device: torch.device) -> Tensor:
    """The codes of a chunk, int64 [rows, T, q] on `device`, with code 0 beyond a row's length, whatever stands there.

    Raises:
        ValueError: a shape, a length or a code that the codec does not have; names it and what is allowed.
    """
    frames, lengths, books = chunk.frames, chunk.lengths, len(book_sizes)
    needed = f"integers [{rows}, T, {books}] are needed"
    if frames.ndim != 3 or frames.shape[0] != rows or frames.is_floating_point():
        raise ValueError(f"codec: frames are {tuple(frames.shape)} {frames.dtype}; {needed}")
    if frames.shape[2] != books:
        raise ValueError(
            f"codec: frames have {frames.shape[2]} codes, the codec was loaded for {books} books; {needed}: "
            "load it with as many as the voice speaks"
        )
    if tuple(lengths.shape) != (rows,) or bool(((lengths < 0) | (lengths > frames.shape[1])).any()):
        raise ValueError(f"codec: lengths {lengths.tolist()} are not {rows} numbers from 0 to {frames.shape[1]}")
    codes = frames.to(device, torch.int64)
    padding = torch.arange(frames.shape[1], device=device) >= lengths.to(device)[:, None]
    codes = codes.masked_fill(padding[..., None], 0)
    wrong = ((codes < 0) | (codes >= torch.tensor(book_sizes, device=device))).nonzero()
    if len(wrong):
        row, frame, book = wrong[0].tolist()
        value, most = int(codes[row, frame, book]), book_sizes[book] - 1
        raise ValueError(f"codec: code {value} in book {book} (row {row}, frame {frame}); 0 to {most} are allowed")
    return codes
