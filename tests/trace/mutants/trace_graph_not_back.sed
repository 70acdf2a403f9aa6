# Launches that are not measured record the events of the one that was.
s/back &= slr_real\.cuGraphExecEventRecordNodeSetEvent\([^;]*;/back = true;/
