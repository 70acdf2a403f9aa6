# A query does not look at the gather.
s/    return r == CUDA_ERROR_NOT_READY;/    return false;/
