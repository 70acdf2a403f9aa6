# All that lies between two looks counts.
s/passed < SLR_IN_GEMM_LOOK_MS \? passed : SLR_IN_GEMM_LOOK_MS/passed/
