/* SLIPRING_VERIFY: a sample of the substituted gathers is run through NCCL too, and compared. */
#ifndef SLR_PLUGIN_VERIFY_H
#define SLR_PLUGIN_VERIFY_H

#include "plugin/gather.h"

/* Whether the communicator's next substituted gather is one of the sample; equal on all ranks. */
bool slr_verify_due(const struct slr_comm *c);

/* The ring has been joined to the stream. Runs the same call through NCCL into memory of its own, waits for the stream
 * and compares all bytes. A difference is an error line with the first byte, and the application gets NCCL's bytes.
 * Without memory for that NCCL writes into the application's buffer: every rank must make the call, whatever it can
 * afford. */
ncclResult_t slr_verify_gather(const struct slr_call *call);

#endif
