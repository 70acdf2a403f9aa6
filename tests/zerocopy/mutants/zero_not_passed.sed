# Who comes to a call that its peer has passed does not notice.
s/if \(used > number \|\|[^;]*;//
