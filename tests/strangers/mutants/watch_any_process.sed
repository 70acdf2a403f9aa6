# Any process descriptor will do.
s/ \|\| st.st_ino != p->inode//
