/* How the ranks of a new communicator find each other on this host, without a time-out in the good case and in the
 * commonest bad one.
 *
 * NCCL's own initialisation is a barrier: no rank returns from it before all have entered. So everything that a rank
 * does before it enters is known to be done once any rank has returned.
 *
 *   before the real call   slr_meet_begin: bind and listen on the abstract socket named by the communicator's key.
 * Exactly one rank of the host succeeds: the hub. The others find the name taken and connect; the connection waits in
 * the hub's backlog. after it               the hub accepts what waits there: whoever is not there by now never
 * announced itself (no library, switched off, another host). Nobody has to wait to know that. Members send HELLO
 * {version, rank, pid}; the hub collects all, judges, and answers each with a VERDICT and, when all is well, the
 * control block's descriptor (SCM_RIGHTS).
 *
 * What can go wrong: the hub dies -> members read end-of-file; what it sent as soon as it had accepted them, its will,
 * then counts: a refusal that names it. A member dies or is silent -> the hub reads
 * end-of-file or reaches the deadline: refusal, told to the others. Another user owns the name -> credentials differ:
 * refusal. Another version -> refusal naming it. Abstract names vanish with their process; nothing is left behind.
 *
 * One thread may run several ranks: begin() never blocks; call hello() for all members, then host() for all hubs, then
 * answer() for all members.
 */
#ifndef SLR_PLUGIN_MEET_H
#define SLR_PLUGIN_MEET_H

#include <stdbool.h>
#include <stdint.h>

struct slr_key {
    uint8_t byte[16];
};

struct slr_meet {
    int hub;    /* listening socket, or -1 */
    int member; /* connection to the hub, or -1 */
};

/* Before the real call. false: no socket could be had (logged); the rank stays out. */
bool slr_meet_begin(struct slr_meet *m, const struct slr_key *key);

/* Gives up at any time: peers see end-of-file. */
void slr_meet_end(struct slr_meet *m);

/* The three steps after the real call. Each returns a decision word (control.h): SLR_UNDECIDED to go on, or a refusal.
 * `deadline` in milliseconds of slr_now_ms(). host() and answer() give the control block's descriptor in *fd (owned by
 * the caller). */
uint32_t slr_meet_hello(struct slr_meet *m, int rank, int nranks);
uint32_t slr_meet_host(struct slr_meet *m, int rank, int nranks, uint64_t deadline, int *fd);
uint32_t slr_meet_answer(struct slr_meet *m, int rank, uint64_t deadline, int *fd);

uint64_t slr_now_ms(void);

#endif
