/* SPDX-License-Identifier: Apache-2.0 */
/* What memory is, whoever maps it where: the race oracle's keys. */
#include "race.h"
#include "race_state.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEVICE = 1, FILE_PAGES, HOST, EVENT };

static uint64_t process(uint32_t pid, uint64_t start)
{
    return (uint64_t)pid << 32 | (start & 0xffffffff);
}

/* Host memory that processes share has the identity of its file. */
static bool shared_file(uintptr_t p, struct race_key *key, uint64_t *offset)
{
    char line[512], perms[8];
    unsigned major, minor;
    uint64_t lo, hi, at, inode;
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "re");

    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64, &lo, &hi, perms, &at, &major,
                       &minor, &inode) == 7 &&
                p >= lo && p < hi;
    if (f)
        fclose(f);
    if (!found || !inode || !strchr(perms, 's'))
        return false;
    *key = (struct race_key){(uint64_t)major << 32 | minor, inode << 8 | FILE_PAGES};
    *offset = at + (p - lo);
    return true;
}

static void identify(struct sg_mem *m)
{
    static uint64_t serial;
    struct race_key key;

    if (m->race_key[1])
        return;
    if (m->hdr) {
        m->race_key[0] = process(m->hdr->owner_pid, m->hdr->owner_start);
        m->race_key[1] = m->hdr->generation << 8 | DEVICE;
    } else if (m->kind == SG_MEM_REGISTERED && shared_file(m->base, &key, &m->race_offset)) {
        m->race_key[0] = key.a;
        m->race_key[1] = key.b;
    } else {
        m->race_key[0] = process((uint32_t)getpid(), sg_own_start());
        m->race_key[1] = ++serial << 8 | HOST;
    }
}

bool race_memory(struct sg_mem *m, uintptr_t p, struct race_key *key, uint64_t *offset)
{
    if (!m)
        return false;
    identify(m);
    *key = (struct race_key){m->race_key[0], m->race_key[1]};
    *offset = m->race_offset + (p - m->base);
    return true;
}

bool race_is_shared(struct race_key key)
{
    return (key.b & 255) != HOST;
}

bool race_is_file(struct race_key key)
{
    return (key.b & 255) == FILE_PAGES;
}

void race_event_place(const struct sg_shared_event *e, struct race_place *place)
{
    *place = (struct race_place){.key = {process(e->owner, e->start), (uint64_t)e->serial << 8 | EVENT},
                                 .addr = (uintptr_t)&e->completed,
                                 .wide = true};
}

static struct sg_mem *pinned(const struct sg_op *op, uintptr_t p)
{
    for (unsigned i = 0; i < op->nranges; i++)
        if (op->ranges[i].ptr == p && op->ranges[i].mem)
            return op->ranges[i].mem;
    return NULL;
}

static bool is_word(uintptr_t p, size_t bytes)
{
    return (bytes == 4 || bytes == 8) && p % bytes == 0;
}

bool race_place_of(struct sg_op *op, struct sg_mem *m, struct race_place *place)
{
    const struct sg_copy *c = &op->u.copy;
    const struct sg_fill *f = &op->u.fill;
    size_t bytes = 0;

    *place = (struct race_place){.addr = 0};
    if (op->kind == SG_OP_WAIT || op->kind == SG_OP_WRITE) {
        place->addr = op->u.memop.addr;
        bytes = op->u.memop.wide ? 8 : 4;
        if (!op->nranges) { /* an interprocess event's counter, in its page */
            race_event_place((const struct sg_shared_event *)(place->addr & ~(uintptr_t)4095), place);
            return true;
        }
    } else if (op->kind == SG_OP_COPY && c->rows == 1 && c->slices == 1) {
        place->addr = c->dst;
        bytes = c->width;
    } else if (op->kind == SG_OP_FILL && f->rows == 1 && f->elem == 4 && f->width == 1) {
        place->addr = f->dst;
        bytes = 4;
    }
    place->wide = bytes == 8;
    if (!is_word(place->addr, bytes))
        return false;
    return race_memory(m ? m : pinned(op, place->addr), place->addr, &place->key, &place->offset);
}
