# A stream's end is noted under the communicator's lock, also where there is nothing to be noted.
s/    if \(here\(o, stream\) && atomic_load\(&o->noted\)\)/    if (false)/
