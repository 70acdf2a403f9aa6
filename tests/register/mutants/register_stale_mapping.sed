# Unmapping memory does not end what is known of it.
s/        slr_block_vanish\(b\);/        break;/
