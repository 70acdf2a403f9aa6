# A rank does not wait to be welcome: what comes later is the root's fallback.
s/return await_welcome\(sock, root.pid\);/return BEGUN;/
