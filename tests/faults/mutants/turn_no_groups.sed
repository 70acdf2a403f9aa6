# Those in groups are not followed.
s/\n        begin_turns\(group\);//
s/if \(!simulate\)\n        end_turns\(group, launched\(r\)\);/(void)begin_turns;\n    (void)end_turns;/
