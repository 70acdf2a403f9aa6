# The last byte of every piece stays behind.
s/(SLR_CU\(cuMemcpyAsync,\s+to,\s+from,\s+bytes)/\1 - 1/
