s/return s->resets != slr_device_resets\(s->device\);/return false;/
