# SPDX-License-Identifier: Apache-2.0
"""scripts/wheels.py with an index of its own: by ranges, without them, and with answers that are wrong.

  wheels.py SOURCE        ends with 77 where there is no pip
"""
import base64
import functools
import hashlib
import http.server
import importlib.util
import io
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import zipfile

WANTED = {"nvidia/demo/include/demo.h": 200_000, "nvidia/demo/include/sub/other.h": 30_000}
OTHERS = {"nvidia/demo/include/cccl/template.h": 300_000, "nvidia/demo/lib/libdemo.a": 1000, "nvidia/demo/lib/libdemo.so": 6_000_000}
INFO = "demo-1.0.dist-info/"
FILE = "demo-1.0-py3-none-any.whl"


@functools.lru_cache
def make_wheel(false_record):
    rng, out, record = random.Random(1), io.BytesIO(), []
    files = {name: rng.randbytes(size) for name, size in {**WANTED, **OTHERS}.items()}
    files[INFO + "METADATA"] = b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"
    files[INFO + "WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    for name, data in files.items():
        told = b"another" if false_record and name in WANTED else data
        digest = base64.urlsafe_b64encode(hashlib.sha256(told).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(data)}\n")
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(INFO + "RECORD", "".join(record) + f"{INFO}RECORD,,\n")
    return out.getvalue(), files


class Index(http.server.BaseHTTPRequestHandler):
    """What the server's `way` says: ranges, none, wrong (other bytes in ranges), short (too few), false (another hash)."""

    def log_message(self, *_):
        pass

    def answer(self, status, data, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(data), "Content-Type": "text/html", **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)
            self.server.served += len(data)

    def do_GET(self):
        server = self.server
        if self.headers.get("Authorization") != "Basic " + base64.b64encode(b"user:secret").decode():
            return self.answer(401, b"", WWW_Authenticate='Basic realm="index"')
        if self.path == "/simple/demo/":
            digest = hashlib.sha256(b"other" if server.way == "false" else server.wheel).hexdigest()
            return self.answer(200, f'<a href="/files/{FILE}#sha256={digest}">{FILE}</a>'.encode())
        if self.path != "/files/" + FILE:
            return self.answer(404, b"")
        if server.way in ("none", "false"):
            return self.answer(200, server.wheel)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked:
            return self.answer(200, server.wheel, Accept_Ranges="bytes")
        begin, end = int(asked[1]), int(asked[2]) + 1
        data = server.wheel[begin:end]
        if begin == 0 and server.way == "wrong":
            data = data[:1000] + bytes(len(data) - 1000)
        elif begin == 0 and server.way == "short":
            data = data[: len(data) // 2]
        self.answer(206, data, Accept_Ranges="bytes", Content_Range=f"bytes {begin}-{end - 1}/{len(server.wheel)}")

    do_HEAD = do_GET


def run(source, way, part="include", false_record=False):
    """The files that came, what was said, the status, and how many bytes were served."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server, tempfile.TemporaryDirectory() as work:
        server.way, server.served = way, 0
        server.wheel, files = make_wheel(false_record)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") and "proxy" not in name.lower()}
        environment.update(PIP_INDEX_URL=f"http://user:secret@127.0.0.1:{server.server_port}/simple/", PIP_CONFIG_FILE=os.devnull,
                           PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_RETRIES="0")
        ended = subprocess.run([sys.executable, f"{source}/scripts/wheels.py", part, work, "demo==1.0"], env=environment,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        server.shutdown()
        there = [os.path.relpath(os.path.join(folder, name), work) for folder, _, names in os.walk(work) for name in names]
        for name in there:
            with open(os.path.join(work, name), "rb") as file:
                assert ended.returncode != 0 or file.read() == files["nvidia/demo/" + name], (way, name)
        return sorted(there), ended.stdout, ended.returncode, server.served


def main():
    source = sys.argv[1]
    if importlib.util.find_spec("pip") is None:
        sys.exit(77)
    headers = ["include/demo.h", "include/sub/other.h"]
    there, said, status, served = run(source, "ranges")
    assert (there, said, status) == (headers, "", 0), (there, said, status)
    assert served < 1_000_000, served
    for way in "none", "wrong", "short":
        there, said, status, served = run(source, way)
        assert (there, status) == (headers, 0) and "whole wheels are downloaded" in said, (way, there, said, status)
        assert served > 6_000_000, (way, served)
    there, said, status, _ = run(source, "ranges", part="lib")
    assert (there, said, status) == (["lib/libdemo.so"], "", 0), (there, said, status)
    _, said, status, _ = run(source, "false")
    assert status == 1 and "HASH" in said.upper() and "pip could not download demo==1.0" in said, (said, status)
    for way in "ranges", "none":
        there, said, status, _ = run(source, way, false_record=True)
        assert status == 1 and "demo.h is not the file that RECORD names" in said and there == [], (there, said, status)


main()
