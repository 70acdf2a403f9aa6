s/imports\[i\]\.gone = true/(void)0/
