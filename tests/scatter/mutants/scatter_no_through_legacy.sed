# What a blocking stream waits for is not looked at.
s/ \|\| \(through_legacy \&\& !carried\)\)/)/
