# Namespaces are not noticed.
s/space != LM_ID_BASE && /space == -2 \&\& /
