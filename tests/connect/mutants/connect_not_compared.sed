s/\*differs = memcmp\([^;]*;/*differs = false;/
