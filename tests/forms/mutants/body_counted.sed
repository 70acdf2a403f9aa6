# What a body gets is counted once for each launch.
s/        if \(p && p->body\) \{/        if (p \&\& p->body \&\& !h) {/
