/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of the tests of strangers: ranks, and others. Each is forked before the test's own process has threads, and
 * goes from step to step when it is told to. */
#ifndef TESTS_STRANGERS_PEOPLE_H
#define TESTS_STRANGERS_PEOPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include "plugin/comm/key.h"

struct person {
    pid_t pid;
    int orders, reports;
};

/* The child waits for the first go(), runs `body` and ends with its result. Its two descriptors here stay open. */
struct person person(int (*body)(int), int arg);

void go(const struct person *p);            /* its next step */
void hear(const struct person *p);          /* waits until it has told something; fails after 30 s */
int ended(const struct person *p);          /* waits for its end: the exit status */
void remove_person(const struct person *p); /* kills it */

/* In the child. */
void tell(void);
void proceed(void); /* waits for go() */
void hold(void);    /* until it is killed */

/* In a child: it is another user's from now on. As root it really is; without, the test's own process takes it for
 * one: getsockopt() and recvmsg() of its process tell another user for the process that `seems_foreign` names. */
void become_foreign(void);
void seems_foreign(pid_t pid);
bool really_foreign(void); /* whether become_foreign is real */

/* In the test's process: its sockets take no filters; and recvmsg() has the last message again and again. */
void refuse_filters(void);
void never_empty(void);

/* Likewise: when nobody connects any more, another user does, until the listener is shut down. */
void never_alone(void);

/* In a child: before it sends anything it tells, and waits for go(); and it tells when the message is sent. Once. */
void send_late(void);

/* In the test's process: the second look at the credentials of `late`, which is when it is turned away, lets it send
 * its message and waits until that has been sent. */
void let_send_before_the_end(const struct person *late);
void wait_until_it_has(void);

socklen_t name_socket(const struct slr_key *key, struct sockaddr_un *a);
int connect_raw(
    const struct slr_key *key); /* as anybody can who has read /proc/net/unix; waits while the queue is full */
int count_descriptors(void);
uint64_t now_ms(void);

#endif
