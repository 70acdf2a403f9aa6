/* SPDX-License-Identifier: Apache-2.0 */
/* The derivations of keys, labels and tokens. */
#include "plugin/comm/key.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "base/hash.h"

_Static_assert(sizeof(struct slr_key) == SLR_SHA256_BYTES, "it is one");

struct slr_key slr_key_derive(const char *use, const struct slr_key *parent, const void *data, size_t bytes)
{
    static const struct slr_key none;
    uint64_t shape[3] = {strlen(use), parent != NULL, bytes}; /* where one part ends and the next begins */
    struct slr_key k;
    struct slr_sha256 h;
    slr_sha256_begin(&h);
    slr_sha256_add(&h, shape, sizeof shape);
    slr_sha256_add(&h, use, strlen(use));
    slr_sha256_add(&h, parent ? parent : &none, sizeof none);
    slr_sha256_add(&h, data, bytes);
    slr_sha256_end(&h, k.byte);
    return k;
}

struct slr_key slr_key_of_id(const ncclUniqueId *id, enum slr_key_way way, int nranks)
{
    const struct slr_key k = slr_key_derive("unique id", NULL, id->internal, sizeof id->internal);
    static const char *const use[] = {[SLR_KEY_INIT_RANK] = "init rank",
                                      [SLR_KEY_INIT_RANK_SCALABLE] = "init rank scalable",
                                      [SLR_KEY_GROW] = "grow"};
    return slr_key_derive(use[way], &k, &nranks, sizeof nranks);
}

struct slr_key slr_key_of_all(void)
{
    static _Atomic uint64_t calls;
    struct {
        uint8_t random[SLR_SHA256_BYTES];
        uint64_t pid, call;
        struct timespec now;
    } from;
    memset(&from, 0, sizeof from); /* the padding is hashed, too */
    from.pid = (uint64_t)getpid();
    from.call = calls++;
    /* Early in the boot there may be no random bytes yet: the rest is still unique. */
    if (getrandom(from.random, sizeof from.random, GRND_NONBLOCK) != (ssize_t)sizeof from.random)
        clock_gettime(CLOCK_REALTIME, &from.now);
    return slr_key_derive("init all", NULL, &from, sizeof from);
}

struct slr_key slr_key_of_split(const struct slr_key *parent, uint64_t number, int color)
{
    int64_t from[2] = {(int64_t)number, color};
    return slr_key_derive("split", parent, from, sizeof from);
}

struct slr_key slr_key_of_shrink(const struct slr_key *parent, uint64_t number, const int *exclude, int count,
                                 int flags)
{
    const struct slr_key k = slr_key_derive("excluded", parent, exclude, (size_t)count * sizeof *exclude);
    int64_t from[2] = {(int64_t)number, flags};
    return slr_key_derive("shrink", &k, from, sizeof from);
}

struct slr_key slr_key_token(const struct slr_key *key)
{
    return slr_key_derive("token", key, NULL, 0);
}

struct slr_label slr_key_label(const struct slr_key *key, const char *use)
{
    const struct slr_key k = slr_key_derive("label", key, use, strlen(use));
    struct slr_label l;
    memcpy(l.byte, k.byte, sizeof l.byte);
    return l;
}

void slr_label_hex(const struct slr_label *label, char hex[SLR_LABEL_HEX])
{
    for (size_t i = 0; i < sizeof label->byte; i++)
        snprintf(hex + 2 * i, 3, "%02x", label->byte[i]);
}

struct slr_label slr_key_public(const struct slr_key *key)
{
    return slr_key_label(key, "name");
}

void slr_key_name(const struct slr_key *key, char name[9])
{
    const struct slr_label l = slr_key_public(key);
    snprintf(name, 9, "%02x%02x%02x%02x", l.byte[0], l.byte[1], l.byte[2], l.byte[3]);
}
