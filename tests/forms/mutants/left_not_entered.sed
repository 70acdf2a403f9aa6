# NCCL's call is entered in its turn of the trials only.
s/= slr_turn_enter\(call\)/= call->why == SLR_R_TRIAL ? slr_turn_enter(call) : (struct slr_turn_call){0}/
