#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real libnccl.so.2 under slipring, as far as that goes without a GPU. By hand, as it takes a wheel of 200 to 340 MB:

  nccl_real.py LIBSLIPRING [VERSION | WHEEL]   VERSION of nvidia-nccl-cu12, downloaded with pip; without: the newest

Looks at: the functions that this NCCL exports are found as slipring's hooks, those that are not hooked as NCCL's own; of
the plugin interfaces whose names are in NCCL, slipring exports one at least; NCCL answers through the hooks, and a
communicator without a GPU is an error and no crash.
"""
import ctypes, os, re, subprocess, sys, tempfile, zipfile


def looked_for(image, name):
    return sorted({int(v) for v in re.findall(rb"\0" + name + rb"_v(\d+)\0", image)})


def inside(library, nccl, hooked):
    """In a process of its own, with slipring preloaded."""
    image = open(nccl, "rb").read()
    ours, theirs = ctypes.CDLL(library), ctypes.CDLL(nccl)
    address = lambda of, name: ctypes.cast(getattr(of, name), ctypes.c_void_p).value
    wrong, found = [], 0
    for name in hooked:
        if not hasattr(theirs, "p" + name):  # NCCL has a second name for each function, which nobody hooks
            continue
        found += 1
        if address(theirs, name) != address(ours, name):
            wrong.append(f"{name}: NCCL's own is found, not the hook")
    if address(theirs, "ncclGetVersion") != address(theirs, "pncclGetVersion"):
        wrong.append("ncclGetVersion: another one than NCCL's is found")
    for plugin in b"ncclTunerPlugin", b"ncclProfiler":
        wanted = looked_for(image, plugin)
        have = [v for v in wanted if hasattr(ours, f"{plugin.decode()}_v{v}")]
        print(f"{plugin.decode()}: NCCL looks for {wanted}, the library has of these {have}")
        if not have and max(wanted, default=1) > 1:  # the tuner's first interface, of 2.19 and 2.20, is not ours
            wrong.append(f"no interface in common: {plugin.decode()}")
    version = ctypes.c_int()
    status = theirs.ncclGetVersion(ctypes.byref(version))
    comm = ctypes.c_void_p()
    init = theirs.ncclCommInitAll(ctypes.byref(comm), 1, None)
    destroy = theirs.ncclCommDestroy(comm) if init == 0 else None
    print(f"NCCL {version.value}: {found} hooks; ncclGetVersion {status}, ncclCommInitAll {init}, ncclCommDestroy {destroy}")
    print("\n".join(wrong) or "ok")
    return 1 if wrong or status or not found else 0


def main(arguments):
    if arguments[:1] == ["--inside"]:
        return inside(arguments[1], arguments[2], arguments[3:])
    if len(arguments) not in (1, 2):
        return __doc__
    library, which = os.path.abspath(arguments[0]), arguments[1] if len(arguments) == 2 else ""
    table = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../base/hooks.def")
    hooked = re.findall(r"^N\([RO], (\w+)\)", open(table).read(), re.M)
    with tempfile.TemporaryDirectory() as folder:
        if not os.path.exists(which):
            name = "nvidia-nccl-cu12" + (f"=={which}" if which else "")
            subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "-q",
                            "-d", folder, name], check=True)
            which = os.path.join(folder, os.listdir(folder)[0])
        with zipfile.ZipFile(which) as archive:
            nccl = archive.extract(next(n for n in archive.namelist() if n.endswith("/lib/libnccl.so.2")), folder)
        environment = dict(os.environ, LD_PRELOAD=library, NCCL_TUNER_PLUGIN=library, NCCL_PROFILER_PLUGIN=library)
        return subprocess.run([sys.executable, os.path.abspath(__file__), "--inside", library, nccl, *hooked],
                              env=environment, timeout=300).returncode


sys.exit(main(sys.argv[1:]))
