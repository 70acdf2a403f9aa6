#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unpacks the include or lib folder of Python wheels, in which CUDA's and NCCL's vendors ship their headers and libraries.

usage: wheels.py include|lib FOLDER NAME==VERSION...

Headers are a hundredth of such a wheel, so only they are read of it, by ranges of the archive: found and fetched by pip's own
classes, with its configuration (index, credentials, proxy, certificates). Those are not made for others, and not every server
does ranges: where this fails, pip downloads the wheels whole. Each file is compared with what the wheel's RECORD says of it.
"""
import base64
import csv
import glob
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

LEFT_OUT = ("cccl", "cub", "cuda", "thrust")  # C++ templates


def wanted(name, part):
    names = name.split("/")  # nvidia/<group>/<part>/...
    return len(names) > 3 and names[2] == part and names[3] not in LEFT_OUT and not name.endswith(("/", ".a", ".py"))


def unpack(archive, part, folder):
    record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
    told = {row[0]: row[1] for row in csv.reader(archive.read(record).decode().splitlines()) if row}
    for name in archive.namelist():
        if not wanted(name, part):
            continue
        path, digest = os.path.join(folder, *name.split("/")[2:]), hashlib.sha256()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with archive.open(name) as source, open(path + ".part", "wb") as out:
            while data := source.read(1 << 20):
                digest.update(data)
                out.write(data)
        if told.get(name) != "sha256=" + base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode():
            os.remove(path + ".part")
            raise zipfile.BadZipFile(f"{name} is not the file that RECORD names")
        os.replace(path + ".part", path)


def fetch(file, archive, part):
    """Takes what is wanted in as few requests as there are runs of it: the file keeps what it has read."""
    every = sorted(archive.infolist(), key=lambda item: item.header_offset)
    ends = [item.header_offset for item in every[1:]] + [archive.start_dir]
    runs = []
    for item, end in zip(every, ends):
        if wanted(item.filename, part):
            if runs and runs[-1][1] == item.header_offset:
                runs[-1][1] = end
            else:
                runs.append([item.header_offset, end])
    for begin, end in runs:
        file.seek(begin)
        file.read(end - begin)


def by_ranges(part, folder, pins):
    from pip._internal.commands import create_command
    from pip._internal.network.lazy_wheel import LazyZipOverHTTP
    from pip._vendor.packaging.specifiers import SpecifierSet

    command = create_command("download")
    options, _ = command.parse_args(["--no-deps", "--only-binary=:all:", *pins])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options=options, session=session)
        for pin in pins:
            name, version = pin.split("==")
            found = finder.find_best_candidate(name, SpecifierSet("==" + version)).best_candidate
            if found is None:
                raise LookupError(f"no wheel of {pin}")
            with LazyZipOverHTTP(found.link.url_without_fragment, session) as file, zipfile.ZipFile(file) as archive:
                fetch(file, archive, part)
                unpack(archive, part, folder)


def whole(part, folder, pins):
    with tempfile.TemporaryDirectory(dir=folder) as work:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "-q", "-d", work]
        ended = subprocess.run([*pip, *pins], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ended.returncode != 0:
            sys.exit("\n".join(ended.stdout.splitlines()[-20:]) + f"\npip could not download {' '.join(pins)}")
        for wheel in glob.glob(os.path.join(work, "*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                unpack(archive, part, folder)


def main():
    part, folder, *pins = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    try:
        if part == "include":
            return by_ranges(part, folder, pins)
    except Exception as problem:  # whatever another pip or server makes of it
        print(f"not by parts ({type(problem).__name__}: {problem}): whole wheels are downloaded", flush=True)
    try:
        whole(part, folder, pins)
    except (OSError, zipfile.BadZipFile, StopIteration) as problem:
        sys.exit(f"a wheel can not be unpacked: {problem}")


main()
