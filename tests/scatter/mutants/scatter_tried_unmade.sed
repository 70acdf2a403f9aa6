# What no GEMM makes is taken for what one makes.
s/ \|\| \(call->scatter \&\& !call->made\.m\);/;/
