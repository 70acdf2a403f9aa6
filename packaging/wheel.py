#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the Python wheel from what has been built: slipring-<version>-py3-none-manylinux_2_<N>_<machine>.whl.

  packaging/wheel.py BUILD_FOLDER OUT_FOLDER [--glibc 2.N]

The wheel holds the package of packaging/python and, in it, bin/slipring (the launcher), lib/libslipring.so, the programs
behind the launcher's commands (libexec/slipring), include/slipring.h, the pages and the examples (share/doc/slipring), in
folders as an installation has them: the launcher finds all by where it lies. It holds nothing of CUDA, and no program that
needs more than the C library (so Jansson has to be there as a static library, else `report` and others are left out, which is
said).

The tag is what the programs and the library ask of the C library: the largest GLIBC_2.N among their needs, or 2.28 when that
is less. --glibc fails when it is more. Built with -DSLIPRING_GLIBC_2_28=ON it is 2.28 or less on any machine; scripts/package.sh --wheel does so.

Nothing but Python's standard library, cmake and readelf is used. The same build makes the same bytes: times are that of
packaging/changelog.
"""
import argparse
import base64
import email.utils
import hashlib
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LEAST = 28  # what is tried, and what PyTorch asks for
# What every Linux with glibc has, by PEP 600; and libgcc_s is not among our needs.
OURS = re.compile(r"lib(c|m|dl|rt|pthread)\.so\.\d+|ld-linux.*\.so\.\d+")

METADATA = """\
Metadata-Version: 2.1
Name: slipring
Version: {version}
Summary: Faster NCCL all-gathers, reduce-scatters and all-reduces for unchanged CUDA programs
License: Apache-2.0
{homepage}Requires-Python: >=3.9
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

    slipring run -- torchrun --nproc-per-node 8 train.py

runs an unchanged CUDA program with `libslipring.so` preloaded: its all-gathers within one host move from NCCL's kernels to
the copy engines, and a GEMM that consumes the gathered buffer begins while the rest of the data is still on its way. CUDA,
NCCL and cuBLAS are those of the program; this package has none of them and needs no other package.

`slipring --help` lists the commands, `slipring doctor -- COMMAND` says what would prevent it, and `import slipring` gives a
program counters and regions (`help(slipring)`). Pages that messages name, as `docs/doctor.md`, are below `share/doc/slipring` of
the package's folder. The software GPU and `ag_gemm`, which `slipring bench` runs, are not part of the wheel.
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: slipring
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = """\
[console_scripts]
slipring = slipring.__main__:main
"""


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def text(*path):
    return read(*path).decode()


def one(pattern, where, what):
    found = re.search(pattern, where, re.MULTILINE)
    if not found:
        sys.exit(f"wheel.py: {what} not found")
    return found[1]


def table(version):
    """The module _table: what the C sources say."""
    names = re.findall(r"^X\((\w+),", text(ROOT, "base", "counters.def"), re.MULTILINE)
    header = text(ROOT, "plugin", "slipring.h")
    lines = ["# SPDX-License-Identifier: Apache-2.0", '"""Made by packaging/wheel.py from base/counters.def and plugin/slipring.h."""', "",
             f'VERSION = "{version}"']
    for region in ("GATHERS", "GEMMS"):
        value = one(rf"^#define SLIPRING_REGION_{region} (\d+)u$", header, f"SLIPRING_REGION_{region}")
        lines.append(f"REGION_{region} = {value}")
    return "\n".join([*lines, "COUNTERS = (", *(f'    "{name}",' for name in names), ")", ""]).encode()


def readelf(option, path):
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, check=True, env=environment).stdout


def strangers(path):
    """The libraries that a program needs and not every machine has."""
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", path))
    return [name for name in needed if not OURS.fullmatch(name)]


def glibc_of(path):
    """N of the largest GLIBC_2.N that it needs."""
    versions = one(r"(Version needs section(?:.*\n)*)", readelf("-V", path), f"version needs of {path}")
    return max(int(n) for n in re.findall(r"Name: GLIBC_2\.(\d+)", versions))


def binaries(prefix):
    """{path in the package: file} of an installation; the library and the launcher have to be there."""
    found = {"bin/slipring": os.path.join(prefix, "bin", "slipring"),
             "lib/libslipring.so": os.path.join(prefix, "lib", "libslipring.so"),
             "include/slipring.h": os.path.join(prefix, "include", "slipring.h")}
    folder = os.path.join(prefix, "libexec", "slipring")
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        needs = strangers(path)
        if needs:
            print(f"wheel.py: left out: {name}, which needs {', '.join(needs)}")
        else:
            found[f"libexec/slipring/{name}"] = path
    pages = os.path.join(prefix, "share", "doc", "slipring")
    for folder, _, names in os.walk(pages):
        for name in sorted(names):
            if name.endswith((".md", "-fields.txt", ".c", ".py", "LICENSE")):  # the pages, and what they link to
                path = os.path.join(folder, name)
                found[f"share/doc/slipring/{os.path.relpath(path, pages)}"] = path
    for name in ("bench", "doctor", "report", "tables", "top", "trace", "tune", "verify"):
        if f"libexec/slipring/slipring-{name}" not in found:
            print(f"wheel.py: the wheel has no `slipring {name}`: it needs Jansson's static library, and report and trace uthash")
    needs = strangers(found["lib/libslipring.so"])
    if needs:
        sys.exit(f"wheel.py: libslipring.so needs {', '.join(needs)}: built with sanitizers?")
    return found


def contents(prefix, version):
    """{name in the archive: (bytes, executable)}"""
    package = os.path.join(ROOT, "packaging", "python", "slipring")
    files = {f"slipring/{name}": (read(package, name), False) for name in os.listdir(package) if name.endswith((".py", ".typed"))}
    files["slipring/_table.py"] = (table(version), False)
    newest, newest_file = 0, ""
    for name, path in binaries(prefix).items():
        files[f"slipring/{name}"] = (read(path), name.startswith(("bin/", "libexec/")))
        if name.startswith(("lib/", "libexec/")):
            needs = glibc_of(path)
            newest, newest_file = max((newest, newest_file), (needs, name))
    return files, newest, newest_file


def write(path, info, files, seconds):
    record = f"{info}/RECORD"
    lines = []
    when = time.gmtime(seconds)[:6]
    # The members with the archive's own records last, as the format recommends.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files, key=lambda name: (name.startswith(info), name)) + [record]:
            if name == record:
                data, executable = "".join([*lines, f"{record},,\n"]).encode(), False
            else:
                data, executable = files[name]
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                lines.append(f"{name},sha256={digest},{len(data)}\n")
            member = zipfile.ZipInfo(name, when)
            member.create_system = 3  # Unix: the modes below
            member.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--glibc", metavar="2.N", type=lambda value: int(one(r"^2\.(\d+)$", value, "--glibc 2.N")), default=10**6)
    options = parser.parse_args()
    cache = text(options.build, "CMakeCache.txt")
    version = one(r"^CMAKE_PROJECT_VERSION:\w+=(.+)$", cache, "the version in CMakeCache.txt")
    released = one(r"^ -- .*>  (.+)$", text(ROOT, "packaging", "changelog"), "a date in packaging/changelog")
    seconds = email.utils.parsedate_to_datetime(released).timestamp()
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([os.environ.get("CMAKE", "cmake"), "--install", options.build, "--prefix", work, "--component", "slipring", "--strip"],
                       check=True, stdout=subprocess.DEVNULL)
        libdir = one(r"^CMAKE_INSTALL_LIBDIR:\w+=(.+)$", cache, "CMAKE_INSTALL_LIBDIR")
        if libdir != "lib":
            os.makedirs(os.path.join(work, "lib"), exist_ok=True)
            os.replace(os.path.join(work, libdir, "libslipring.so"), os.path.join(work, "lib", "libslipring.so"))
        files, glibc, because = contents(work, version)
        if glibc > options.glibc:
            sys.exit(f"wheel.py: {because} needs glibc 2.{glibc}, not 2.{options.glibc}: " + ", ".join(sorted(set(
                re.findall(rf"(\S+@GLIBC_2\.{glibc})\b", readelf("--dyn-syms", os.path.join(work, because)))))))
    homepage = re.search(r"^SLIPRING_HOMEPAGE:\w+=(.+)$", cache, re.MULTILINE)
    homepage = f"Project-URL: Homepage, {homepage[1]}\n" if homepage else ""
    tag = f"py3-none-manylinux_2_{max(glibc, LEAST)}_{os.uname().machine}"
    info = f"slipring-{version}.dist-info"
    files[f"{info}/METADATA"] = (METADATA.format(version=version, homepage=homepage).encode(), False)
    files[f"{info}/WHEEL"] = (WHEEL.format(tag=tag).encode(), False)
    files[f"{info}/entry_points.txt"] = (ENTRY_POINTS.encode(), False)
    files[f"{info}/LICENSE"] = (read(ROOT, "LICENSE"), False)
    files[f"{info}/copyright"] = (read(ROOT, "packaging", "copyright"), False)  # Jansson's and uthash's, too
    os.makedirs(options.out, exist_ok=True)
    path = os.path.join(options.out, f"slipring-{version}-{tag}.whl")
    write(path, info, files, seconds)
    print(f"{path}: {os.path.getsize(path)} bytes; {because} needs glibc 2.{glibc}")


if __name__ == "__main__":
    main()
