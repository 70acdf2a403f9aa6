/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of communicators: what only the ranks of a communicator can know, and what may be shown of
 * it.
 *
 *   key     256 bits, derived from the ncclUniqueId, from the parent's key, or from random bytes.
 *           Secret: it is kept in the memory of the ranks' processes, their control block included, and never sent
 *           or logged.
 *   label   128 bits, derived from a key for one use: the name of a socket, the communicator's name
 *           in the log, its address in messages. Public.
 *   token   256 bits, derived from a key: shows the collecting rank that who connects knows the key
 *           (bootstrap.h). Sent only to a process of the same user.
 *
 * Every derivation is one SHA-256 over the name of its use, the parent, the length of the data and
 * the data, so neither a label nor a token gives away its key or another one's, and equal data for
 * different uses gives different keys. All functions are pure, but slr_key_of_all.
 */
#ifndef SLR_PLUGIN_COMM_KEY_H
#define SLR_PLUGIN_COMM_KEY_H

#include <stddef.h>
#include <stdint.h>
#include "base/real.h"

struct slr_key {
    uint8_t byte[32];
};

struct slr_label {
    uint8_t byte[16];
};

/* Of a communicator that one is to grow to: by the rank that has made its id, for the others that have the parent. */
struct slr_key_offer {
    struct slr_key key;
    _Atomic uint64_t number; /* of the parent's call of ncclCommGrow; written behind the key. 0: none yet */
};

#define SLR_LABEL_HEX (2 * 16 + 1)

/* `use` is a constant of the caller. `parent` NULL: none. */
struct slr_key slr_key_derive(const char *use, const struct slr_key *parent, const void *data, size_t bytes);

/* Ways to make a communicator; equal on its ranks, different for all others. */
enum slr_key_way { SLR_KEY_INIT_RANK, SLR_KEY_INIT_RANK_SCALABLE, SLR_KEY_GROW };
struct slr_key slr_key_of_id(const ncclUniqueId *id, enum slr_key_way way, int nranks);
struct slr_key slr_key_of_all(void); /* another one at each call: all its ranks are in this process */
struct slr_key slr_key_of_split(const struct slr_key *parent, uint64_t number, int color);
struct slr_key slr_key_of_shrink(const struct slr_key *parent, uint64_t number, const int *exclude, int count,
                                 int flags);

struct slr_key slr_key_token(const struct slr_key *key);

struct slr_label slr_key_label(const struct slr_key *key, const char *use);
void slr_label_hex(const struct slr_label *label, char hex[SLR_LABEL_HEX]);

/* The communicator in logs and messages; its name is the first 8 hex digits. */
struct slr_label slr_key_public(const struct slr_key *key);
void slr_key_name(const struct slr_key *key, char name[9]);

#endif
