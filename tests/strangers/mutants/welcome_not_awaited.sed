# A rank does not wait to be welcome: what comes later is the hub's will.
s/return await_welcome\(s, hub.pid\);/return BEGUN;/
