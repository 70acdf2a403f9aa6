# A part takes the scale factors of the first one.
s/\(const char \*\)\*scale \+ scale_offset\([^;]*;/*scale;/
