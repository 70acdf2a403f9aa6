/* SPDX-License-Identifier: Apache-2.0 */
/* Events that go from process to process, and streams that end.
 *
 * An event whose handle another process has can be recorded there, unseen by this one; so it must
 * not carry a gather (plugin/gather/pending.h). The two functions by which events travel are gated
 * as all others, and behind the gate the stub jumps to the function of event.c instead of the
 * driver's. So it does when a stream is destroyed on which a communicator has work that others have
 * to come behind (plugin/gather/order.h). */
#ifndef SLR_INTERPOSE_EVENT_H
#define SLR_INTERPOSE_EVENT_H

/* Puts them in front of the driver's functions in slr_gate_real, when gathers can be pending at all
 * and the driver has what carrying needs. Once, when the driver's functions have been found and
 * before stubs may jump. */
void slr_event_install(void);

#endif
