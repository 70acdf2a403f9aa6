# Each captured gather of a group starts behind the one before it on its stream.
s/            one->status = slr_recording_steps\(&one->x, SLR_RECORD_ENTER\);/            one->status = SLR_OK;/
s/step_round\(all, round, SLR_RECORD_PUT\)/step_round(all, round, SLR_RECORD_ENTER | SLR_RECORD_PUT)/
