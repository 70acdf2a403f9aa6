# Any infinity or NaN is as good as another.
s/\(isinf\(other\) [^;]*isnan\(other\)\);/!isfinite(other);/
