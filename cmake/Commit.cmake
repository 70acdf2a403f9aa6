# SPDX-License-Identifier: Apache-2.0
# cmake -DSOURCE=FOLDER -DOUT=FILE -P: writes a header with the commit that FOLDER is at, as `slipring --version` says it; no
# commit where FOLDER is no git checkout of its own. The file is left alone when it would not change.
set(commit "")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty OUTPUT_VARIABLE commit ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define SLR_COMMIT \"${commit}\"\n")
