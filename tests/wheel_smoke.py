"""Try the built wheel in environments of its own: without pins, and with the oldest that it takes.

`make wheel` runs this with the Python of each. ``newest`` (the default): as a user would get it
today. ``oldest``: what reads files at its lower bound, which ``bounds`` prints for pip. To check
one more thing, add a function whose name begins with ``check_``, or with ``newest_`` or ``oldest_``
for one environment; it runs by itself and fails by raising.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from importlib.metadata import version
from itertools import chain
from pathlib import Path

READERS = ("numpy", "scikit-learn", "skops", "pyarrow", "zarr", "numcodecs", "fsspec", "pillow")


def lower_bounds() -> dict[str, str]:
    """Return the oldest allowed version of every package that pyproject.toml names with one."""
    path = Path(__file__).resolve().parents[1] / "pyproject.toml"
    project = tomllib.loads(path.read_text())["project"]
    wanted = chain(project["dependencies"], *project["optional-dependencies"].values())
    split = (re.match(r"([\w-]+)(?:\[\w+\])?>=([\w.]+)", each) for each in wanted)
    return {found[1]: found[2] for found in split if found}


def oldest_versions_are_the_lower_bounds() -> None:
    bounds = lower_bounds()
    for name in READERS:
        found, bound = version(name), bounds[name]
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", found), (name, found, bound)


def check_votes_and_releases_are_read() -> None:
    import numpy as np

    import privote as pv
    from privote.votes import arrays as votefiles

    votes = np.random.default_rng(0).random((9, 5, 3)) < 0.3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "votes.npz"
        votefiles.write_packed(path, votes)
        assert (votefiles.read(path).to_array() == votes).all()
        release = pv.label(votes, epsilon=8, delta=1e-5, mechanism=pv.BinaryVoting(sigma=2.0))
        release.save(Path(folder) / "labels.npz")
        assert pv.Release.load(Path(folder) / "labels.npz").answered == release.answered


def hostile_student(path: Path) -> None:
    """Write a student whose model is __builtins__, said to be of a type that privote knows.

    A method of a method: skops before 0.12 judged the type that the file states (CVE-2025-54413).
    """
    from sklearn.linear_model import LogisticRegression
    from skops.io import dumps

    with zipfile.ZipFile(io.BytesIO(dumps(LogisticRegression().decision_function))) as file:
        method = json.loads(file.read("schema.json"))
    known = {"__module__": "privote.learning.gradients", "__class__": "DPLinear"}
    inner = {**method, **known}
    outer = {**inner, "content": {"func": "__builtins__", "obj": inner}, "__id__": 1}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("schema.json", json.dumps(outer))
    facts = {"label_names": ["a"], "feature_names": None, "guarantee": None, "method": None}
    facts |= {"format": 3, "version": "1", "table": False, "network": None, "thresholds": 0.5}
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("facts.json", json.dumps(facts))
        file.writestr("student.skops", content.getvalue())


def check_students_are_read_and_hostile_ones_refused() -> None:
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import MultiOutputClassifier

    import privote as pv
    from privote.learning.saving import load_student, save_student

    X = np.random.default_rng(0).random((30, 4))
    model = MultiOutputClassifier(LogisticRegression()).fit(X, (X[:, :2] > 0.5).astype(int))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.student"
        save_student(path, model, label_names=["a", "b"])
        assert (load_student(path).model.predict(X) == model.predict(X)).all()
        hostile_student(path)
        said = "it was loaded"
        try:
            load_student(path)
        except pv.InputError as error:
            said = str(error)
        assert "malicious" in said, said


def oldest_zarr_and_parquet_are_read() -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import zarr

    from privote.votes import arrays as votefiles

    votes = np.random.default_rng(0).random((9, 5, 3)) < 0.3
    with tempfile.TemporaryDirectory() as folder:
        array = zarr.create_array(
            f"{folder}/v.zarr", shape=votes.shape, dtype="int8", chunks=(4, 5, 3)
        )
        array[:] = votes
        assert (votefiles.read(f"{folder}/v.zarr").to_array() == votes).all()
        columns = {f"label_{i}": votes[:, :, i].reshape(-1) for i in range(3)}
        columns |= {"query": np.repeat(np.arange(9), 5), "voter": np.tile(np.arange(5), 9)}
        pq.write_table(pa.table(columns), f"{folder}/v.parquet", write_page_checksum=True)
        assert (votefiles.read(f"{folder}/v.parquet").to_array() == votes).all()


def oldest_pictures_are_read() -> None:
    import numpy as np
    from PIL import Image

    from privote.datasets.images import Images

    with tempfile.TemporaryDirectory() as folder:
        Image.fromarray(np.full((9, 9, 3), 255, np.uint8)).save(f"{folder}/a.png")
        assert np.asarray(Images(paths=[f"{folder}/a.png"], size=4)).max() == 1


def newest_numpy_is_2() -> None:
    import numpy

    major = int(numpy.__version__.split(".")[0])
    assert major == 2, f"without pins numpy 2 was expected, but this is {numpy.__version__}"


def check_import_is_from_the_wheel() -> None:
    import privote

    home = Path(privote.__file__).resolve().parent
    site = Path(sysconfig.get_path("purelib")).resolve()
    assert site in home.parents, f"privote came from {home}, not from the wheel in {site}"
    assert (home / "py.typed").is_file(), "the wheel lacks py.typed"


def check_versions_agree() -> None:
    import privote

    assert privote.__version__ == version("privote"), (privote.__version__, version("privote"))


def check_command_line() -> None:
    import privote

    script = Path(sysconfig.get_path("scripts")) / "privote"
    for command in ([str(script)], [sys.executable, "-I", "-m", "privote"]):
        shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stderr
        assert privote.__version__ in shown.stdout, shown.stdout


def main(which: str = "newest") -> int:
    if which == "bounds":
        bounds = lower_bounds()
        print(*(f"{name}=={bounds[name]}" for name in READERS), sep="\n")
        return 0
    failures = 0
    for name, check in sorted(globals().items()):
        if not name.startswith(("check_", f"{which}_")):
            continue
        label = name.removeprefix("check_").replace("_", " ")
        try:
            check()
        except Exception as error:
            failures += 1
            print(f"FAILED  {label}: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            print(f"ok      {label}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
