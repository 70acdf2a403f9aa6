# Loading is not said to be safe in a capture.
s/slr_swap_capture_mode\(\&mode\);\n    enum/enum/
