# The GEMM that has been told returns its own result.
s/slr_in_call_leave\(entry\) \? result : CUBLAS_STATUS_EXECUTION_FAILED/slr_in_call_leave(entry) ? result : result/
