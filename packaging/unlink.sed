# SPDX-License-Identifier: Apache-2.0
# Of the pages that are installed, each one line (sed -z): links to what is not installed become their text.
s#\[\([^][]*\)\](\(\.\./\)*\(softgpu/\|tests/\|bench/\|scripts/\|packaging/\|CONTRIBUTING\.md\)[^)]*)#\1#g
