s/ && slr_comm_idle\(c\);/;/
