# The owner that comes second does not push, whatever the reader said.
s/route->to = slr_exported_mapped\([^;]*;/route->to = 0;/
