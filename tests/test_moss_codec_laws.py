"""The laws of codecs on MOSS-Audio-Tokenizer in its three shapes, with random weights and contexts of a few frames.

Products of other shapes round apart: by at most 6e-7 in 500 random walks a shape, where sound is 0.5 to 2.5 in size.
"""

import pytest
import torch
from torch import Tensor

from codec.moss import load_moss_codec
from search.protocols import Codec
from tests.contracts import CodecLaws
from tests.tiny_codec import KINDS, tiny_codec


@pytest.fixture(scope="module", params=KINDS)
def codec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Codec:
    return load_moss_codec(tiny_codec(tmp_path_factory.mktemp("codec"), request.param, seed=1), books=3)


class TestMossCodec(CodecLaws):
    tolerance = 2e-6
    examples = 10

    @pytest.fixture
    def pool(self) -> Tensor:
        return torch.randint(0, 16, (40, 3), generator=torch.Generator().manual_seed(2))
