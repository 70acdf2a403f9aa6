# SPDX-License-Identifier: Apache-2.0
"""The launcher of this package, and what its commands print."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Union

LAUNCHER = Path(__file__).resolve().parent / "bin" / "slipring"


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    # The launcher's own processes make no gathers: what is preloaded here has no business there.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run([str(LAUNCHER), *arguments], env=environment, capture_output=True, text=True, check=False)


def report(folder: Union[str, "os.PathLike[str]"]) -> dict[str, Any]:
    """What `slipring report --json` says of the logs in a folder, as `slipring run --record FOLDER` leaves them.

    RuntimeError, with the tool's words: there are no logs, or this package has no such tool.
    """
    said = _run("report", "--help")
    option = re.search(r"^\s*--json\b(.*)$", said.stdout, re.MULTILINE)
    if said.returncode != 0 or not option:
        raise RuntimeError(said.stderr.strip() or f"slipring report of this package ({LAUNCHER}) has no --json")
    to_stdout = ["-"] if "FILE" in option[1] else []
    done = _run("report", "--json", *to_stdout, os.fspath(folder))
    if done.returncode not in (0, 1):  # 1: some lines or files were not used, which the report says, too
        raise RuntimeError(done.stderr.strip() or f"slipring report: exit status {done.returncode}")
    try:
        result = json.loads(done.stdout)
    except ValueError as error:
        raise RuntimeError(done.stderr.strip() or f"slipring report: no JSON: {error}") from error
    if not isinstance(result, dict):
        raise RuntimeError("slipring report: not one JSON object")
    return result
