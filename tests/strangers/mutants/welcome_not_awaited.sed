# A rank does not wait to be welcome: what comes later is the root's fallback.
s/return await_welcome\(s, root.pid\);/return BEGUN;/
