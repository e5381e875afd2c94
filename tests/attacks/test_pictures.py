"""Files among pictures that are none: each is refused in a sentence, and before anything is run."""

import os
from io import BytesIO

import numpy as np
import pytest

from privote.datasets import Images
from privote.errors import InputError

PIL = pytest.importorskip("PIL.Image")


def _packed(form):
    PIL.new("RGB", (9, 9)).save(data := BytesIO(), form)
    return data.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="a named pipe, which would wait for ever"),
        pytest.param(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", id="EPS"),
        pytest.param(_packed("GIF"), id="GIF"),
        pytest.param(_packed("TIFF"), id="TIFF"),
        pytest.param(_packed("PNG")[:45], id="cut short"),
        pytest.param(b"", id="empty"),
    ],
)
def test_what_is_no_picture_is_refused_by_its_content_not_its_name(tmp_path, content):
    path = tmp_path / "a.png"
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    images = Images(paths=[str(path)], size=8)
    assert images.unreadable().tolist() == [0]
    with pytest.raises(InputError, match=r"a\.png"):
        images[np.arange(1)]
