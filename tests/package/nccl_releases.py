#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Facts of NCCL's releases, for nccl_releases.txt: names and numbers, no text of NCCL's.

  nccl_releases.py --refresh [VERSION...]   downloads the newest patch release of each minor release that is not in the table (or
                                       these versions), one after the other, with pip; 200 to 340 MB each, nothing is kept
  nccl_releases.py --wheel FILE             the facts of one wheel
  nccl_releases.py --check SOURCE [NCCL_H]  what the table, and the nccl.h at hand, say against the hooks of SOURCE

The functions are what libnccl.so.2 exports; nccl.h says which of them take a stream or make a communicator. The plugin
interfaces are those whose names are in the library: these it looks for.
"""
import os, re, struct, subprocess, sys, tempfile, zipfile

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nccl_releases.txt")
OLDEST = (2, 19)


def exported(image):
    """Names that an ELF64 little-endian library defines in its dynamic symbol table."""
    sections, entry, count = struct.unpack_from("<Q", image, 40)[0], *struct.unpack_from("<HH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, sections + i * entry) for i in range(count)]
    names = set()
    for kind, offset, size, link in ((h[1], h[4], h[5], h[6]) for h in headers):
        if kind != 11:  # SHT_DYNSYM
            continue
        strings = headers[link][4]
        for at in range(offset, offset + size, 24):
            name, info, _, section = struct.unpack_from("<IBBH", image, at)
            if section and info & 15 == 2:  # defined functions
                names.add(image[strings + name:image.index(b"\0", strings + name)].decode())
    return names


def prototypes(header):
    """Function name: parameters, of a C header."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*(\\\n[^\n]*)*", " ", header, flags=re.S | re.M)
    return {m[1]: m[2] for m in re.finditer(r"\b(nccl[A-Z]\w*)\s*\(([^()]*)\)\s*;", text)}


def kind(parameters):
    """s: takes a stream; c: makes or takes in a communicator through a pointer; else -."""
    found = ("s" if "cudaStream_t" in parameters else "") + ("c" if re.search(r"\bncclComm_t\s*\*", parameters) else "")
    return found or "-"


def facts(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        header = archive.read(next(n for n in names if n.endswith("/include/nccl.h"))).decode()
        image = archive.read(next(n for n in names if n.endswith("/lib/libnccl.so.2")))
    define = lambda name: re.search(rf"#define\s+{name}\s+(\d+)", header)[1]
    interfaces = lambda name: sorted({int(v) for v in re.findall(rb"\0" + name + rb"_v(\d+)\0", image)})
    known = prototypes(header)
    functions = {n: kind(known.get(n, "")) for n in exported(image) if re.match(r"nccl[A-Z]\w*$", n)}
    version = ".".join(define(f"NCCL_{part}") for part in ("MAJOR", "MINOR", "PATCH"))
    return version, interfaces(b"ncclTunerPlugin"), interfaces(b"ncclProfiler"), functions


def order(version):
    return tuple(int(part) for part in version.split("."))


def read_table():
    releases, functions = {}, {}
    for line in open(TABLE) if os.path.exists(TABLE) else ():
        words = line.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "release":
            releases[words[1]] = tuple([int(v) for v in text.split(",") if v != "-"] for text in words[2:4])
        elif words[0] == "function":
            functions[words[1]] = {"kind": words[2], "in": words[3:]}
    return releases, functions


def write_table(releases, functions):
    listed = lambda numbers: ",".join(map(str, numbers)) or "-"
    with open(TABLE, "w") as out:
        out.write("# SPDX-License-Identifier: Apache-2.0\n"
                  "# What NCCL's releases have, made by nccl_releases.py --refresh.\n"
                  "# release VERSION, tuner interfaces and profiler interfaces that it looks for\n"
                  "# function NAME, KIND (s: takes a stream, c: pointer to a communicator), first release, and the last if it is gone\n")
        for version in sorted(releases, key=order):
            tuner, profiler = releases[version]
            out.write(f"release {version} {listed(tuner)} {listed(profiler)}\n")
        for name in sorted(functions):
            out.write(f"function {name} {functions[name]['kind']} {' '.join(functions[name]['in'])}\n")


def versions_to_have():
    out = subprocess.run([sys.executable, "-m", "pip", "index", "versions", "nvidia-nccl-cu12"], capture_output=True,
                         text=True, check=True).stdout
    newest = {}
    for text in re.search(r"Available versions: (.*)", out)[1].split(", "):
        if re.fullmatch(r"\d+\.\d+\.\d+", text) and order(text)[:2] >= OLDEST:
            newest.setdefault(order(text)[:2], text)  # pip lists the newest first
    return sorted(newest.values(), key=order)


def refresh(wanted):
    releases, functions = read_table()
    have = {version: {n for n, f in functions.items() if order(f["in"][0]) <= order(version) and
                      (len(f["in"]) == 1 or order(version) <= order(f["in"][1]))} for version in releases}
    kinds = {n: f["kind"] for n, f in functions.items()}
    for version in wanted or [v for v in versions_to_have() if v not in releases]:
        with tempfile.TemporaryDirectory() as folder:
            print(f"nvidia-nccl-cu12=={version}", flush=True)
            subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
                            "-q", "-d", folder, f"nvidia-nccl-cu12=={version}"], check=True)
            found, tuner, profiler, exports = facts(os.path.join(folder, os.listdir(folder)[0]))
        releases[found] = tuner, profiler
        have[found] = set(exports)
        kinds.update({n: k for n, k in exports.items() if k != "-" or n not in kinds})
    last = max(have, key=order)
    table = {}
    for name in set().union(*have.values()):
        holds = sorted((v for v in have if name in have[v]), key=order)
        table[name] = {"kind": kinds[name], "in": holds[:1] + ([] if name in have[last] else holds[-1:])}
    write_table(releases, table)


def rows(path, form):
    return {m[1]: m[2:] for m in re.finditer(form, open(path).read(), re.M)}


def check(source, header):
    releases, functions = read_table()
    hooked = re.findall(r"^N\([RO], (\w+)\)", open(os.path.join(source, "base/hooks.def")).read(), re.M)
    left = [name for row in re.findall(r'^U\("[^"]+",([\w\s]+)\)$', open(os.path.join(source, "interpose/nccl_left.def")).read(), re.M)
            for name in row.split()]
    plugin = re.findall(r"^X\((\w+)_v(\d+),", open(os.path.join(source, "plugin/plugin.def")).read(), re.M)
    wrong = [f"{name}: hooked, and said to be left alone" for name in left if name in hooked]
    at_hand = prototypes(open(header).read()) if header else {}
    for name, where in [(n, "NCCL " + f["in"][0]) for n, f in functions.items()] + [(n, header) for n in at_hand]:
        if name not in hooked and name not in left:
            wrong.append(f"{name} ({where}): neither in base/hooks.def nor in interpose/nccl_left.def")
    for name in left:
        if "s" in functions.get(name, {"kind": kind(at_hand.get(name, ""))})["kind"]:
            wrong.append(f"{name}: takes a stream, so it has to be hooked, whatever nccl_left.def says")
        if name not in functions and name not in at_hand:
            wrong.append(f"{name}: in nccl_left.def, and in no NCCL")
    for name in hooked:
        if name not in functions:
            wrong.append(f"{name}: hooked, and in no NCCL")
    needs = [n for table in ("real", "hooks")
             for n in re.findall(r"^N\(R, (\w+)\)", open(os.path.join(source, f"base/{table}.def")).read(), re.M)]
    wrong += [f"{n}: has to exist, and NCCL {'.'.join(map(str, OLDEST))} has none" for n in needs
              if order(functions.get(n, {"in": ["99"]})["in"][0])[:2] > OLDEST]
    # The tuner's first interface, of 2.19 and 2.20, is another one: no tuner there.
    for which, index, since in ("ncclTunerPlugin", 0, (2, 21)), ("ncclProfiler", 1, OLDEST):
        ours = {int(v) for n, v in plugin if n == which}
        for version, theirs in releases.items():
            if order(version)[:2] >= since and theirs[index] and not ours & set(theirs[index]):
                wrong.append(f"NCCL {version} looks for {which} {theirs[index]}, the library has {sorted(ours)}")
    if len(releases) < 14 or len(functions) < 40:
        wrong.append(f"{TABLE} is not complete")
    print("\n".join(dict.fromkeys(wrong)) or f"{len(releases)} releases, {len(functions)} functions, {len(hooked)} hooked")
    return 1 if wrong else 0


def main(arguments):
    if arguments[:1] == ["--refresh"]:
        return refresh(arguments[1:])
    if arguments[:1] == ["--wheel"] and len(arguments) == 2:
        return print(facts(arguments[1]))
    if arguments[:1] == ["--check"] and len(arguments) in (2, 3):
        return check(arguments[1], arguments[2] if len(arguments) == 3 else None)
    return __doc__


sys.exit(main(sys.argv[1:]))
