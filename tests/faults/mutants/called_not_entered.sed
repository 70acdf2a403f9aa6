# A reduce-scatter in its turn is not entered.
s/= slr_turn_enter\(call\)/= {0}/
