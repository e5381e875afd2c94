"""What every test can use: hypothesis profiles, and the real data if it is on this machine."""

from __future__ import annotations

import gc
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, settings

from privote.datasets import load_teacher_votes

# As if the extra [text] were absent: reading every text of a made-up table takes minutes. Tests of
# texts take this away.
sys.modules.setdefault("sentence_transformers", None)  # type: ignore[arg-type]

REPOSITORY = Path(__file__).resolve().parent.parent

# Choose with `pytest --hypothesis-profile=full`. No deadline: a busy machine is not a defect.
# The short profile tries the same examples every time, so that a change that did not break
# anything is never blamed; the full one looks for new ones.
settings.register_profile(
    "short",
    deadline=None,
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "full",
    deadline=None,
    max_examples=500,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("short")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave what collecting makes alone: seven thousand tests live until the end.

    Otherwise Python looks through all of them for garbage, again and again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with pages and examples, up to a minute each: at the end they would keep one core."""
    items.sort(key=lambda item: item.path.name not in ("test_docs.py", "test_examples.py"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data sets: ``$PRIVOTE_SHARED/data``, or ``../shared/data``."""
    named = os.environ.get("PRIVOTE_SHARED")
    folder = (Path(named) if named else REPOSITORY.parent / "shared") / "data"
    if folder.is_dir():
        return folder
    if named:
        pytest.fail(f"PRIVOTE_SHARED is {named!r}, but there is no folder {folder}")
    pytest.skip("the real data is absent: put it at ../shared or name its place in PRIVOTE_SHARED")


@pytest.fixture(scope="session")
def tmc_votes() -> npt.NDArray[np.bool_]:
    """Return real votes, (4000 queries, 50 voters, 22 labels), read-only."""
    return load_teacher_votes().votes


class Store:
    """An object store whose objects can be refused: ``store.url`` is a folder there.

    ``fails`` is called with the name of every object that is read, and may raise.
    """

    def __init__(self, system: Any) -> None:
        self.system, self.url = system, f"failing://{uuid.uuid4().hex}"
        self.fails: Callable[[str], None] = lambda name: None

    def put(self, path: Path) -> str:
        """Return the URL of a copy of this file or folder."""
        url = f"{self.url}/{path.name}"
        for file in (path, *path.rglob("*")):
            if file.is_file():
                rest = "" if file == path else f"/{file.relative_to(path).as_posix()}"
                self.system().pipe_file(url + rest, file.read_bytes())
        return url


@pytest.fixture
def store() -> Iterator[Store]:
    """Return a store in this process's memory, behind URLs of its own."""
    fsspec = pytest.importorskip("fsspec")
    from fsspec.implementations.memory import MemoryFileSystem

    class Failing(MemoryFileSystem):  # type: ignore[misc]
        protocol = ("failing",)

        @classmethod
        def _strip_protocol(cls, path: Any) -> Any:
            return super()._strip_protocol(str(path).replace("failing://", "memory://"))

        def cat_file(self, path: Any, *where: Any, **how: Any) -> Any:
            made.fails(str(path))
            return super().cat_file(path, *where, **how)

        def _open(self, path: Any, mode: str = "rb", **how: Any) -> Any:
            if mode == "rb":
                made.fails(str(path))
            return super()._open(path, mode, **how)

        def info(self, path: Any, **how: Any) -> Any:
            made.fails(str(path))
            return super().info(path, **how)

    fsspec.register_implementation("failing", Failing, clobber=True)
    made = Store(Failing)
    yield made
    made.fails = lambda name: None
    if Failing().exists(made.url):
        Failing().rm(made.url, recursive=True)
