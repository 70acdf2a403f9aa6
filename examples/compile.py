#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the Python examples compile, say at their top how they are run, and are in README.md. compile.py FOLDER"""
import ast
import glob
import os
import sys

folder = sys.argv[1]
with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
    page = file.read()
paths = [path for path in sorted(glob.glob(os.path.join(folder, "*.py"))) if os.path.basename(path) != os.path.basename(__file__)]
for path in paths:
    name = os.path.basename(path)
    with open(path, encoding="utf-8") as file:
        source = file.read()
    compile(source, path, "exec")
    words = ast.get_docstring(ast.parse(source)) or ""
    if "slipring run " not in words or f"examples/{name}" not in words or "Expect " not in words:
        sys.exit(f"{name}: its docstring does not say how to run it and what to expect")
    if f"({name})" not in page:
        sys.exit(f"{name} is not in README.md")
print(f"{len(paths)} programs")
sys.exit(0 if paths else "no programs")
