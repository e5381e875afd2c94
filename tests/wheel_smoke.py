"""Try the built wheel in an environment of its own, as a user would get it: without pins.

`make wheel` runs this with the Python of that environment. To check one more thing, add a
function whose name begins with ``check_``; it runs by itself and fails by raising.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path


def check_numpy_is_2() -> None:
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
    from importlib.metadata import version

    import privote

    assert privote.__version__ == version("privote"), (privote.__version__, version("privote"))


def check_command_line() -> None:
    import privote

    script = Path(sysconfig.get_path("scripts")) / "privote"
    for command in ([str(script)], [sys.executable, "-I", "-m", "privote"]):
        shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stderr
        assert privote.__version__ in shown.stdout, shown.stdout


def main() -> int:
    failures = 0
    for name, check in sorted(globals().items()):
        if not name.startswith("check_"):
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
    sys.exit(main())
