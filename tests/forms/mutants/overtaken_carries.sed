# What has been put on an origin behind the gather is forgotten: events behind it are carriers.
s/h->overtaken = true;/;/
s/return h->origin && !h->overtaken &&[^;]*;/return false;/
