# NaN need not stay NaN.
s/return isnan\(other\);/return true;/
