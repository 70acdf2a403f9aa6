# All that lies between two looks counts.
s/passed < SLR_IN_CALL_LOOK_MS \? passed : SLR_IN_CALL_LOOK_MS/passed/
