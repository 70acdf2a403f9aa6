/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/model/model_tables.h"
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct text_row {
    UT_hash_handle hh;
    char text[];
};

/* Interned texts and numbers; no padding that is not zero. */
struct key {
    const char *text;
    int64_t a, b;
};

struct key_row {
    struct key key;
    uint32_t index;
    UT_hash_handle hh;
};

struct model_tables {
    struct text_row *texts;
    struct key_row *processes, *comms, *members;
};

struct model_tables *model_tables_new(void)
{
    return tool_alloc(1, sizeof(struct model_tables));
}

static void free_keys(struct key_row *head)
{
    struct key_row *row, *next;
    HASH_ITER(hh, head, row, next)
    {
        HASH_DEL(head, row);
        free(row);
    }
}

void model_tables_free(struct model_tables *t)
{
    struct text_row *row, *next;
    HASH_ITER(hh, t->texts, row, next)
    {
        HASH_DEL(t->texts, row);
        free(row);
    }
    free_keys(t->processes);
    free_keys(t->comms);
    free_keys(t->members);
    free(t);
}

const char *model_intern(struct model *m, const char *text)
{
    struct text_row *row;
    if (!text)
        return NULL;
    size_t len = strlen(text);
    HASH_FIND(hh, m->tables->texts, text, len, row);
    if (!row) {
        row = tool_alloc(1, sizeof *row + len + 1);
        memcpy(row->text, text, len + 1);
        HASH_ADD_KEYPTR(hh, m->tables->texts, row->text, len, row);
    }
    return row->text;
}

/* The row for a key; *fresh: it was made, with `index`. */
static struct key_row *find(struct key_row **head, struct key key, uint32_t index, bool *fresh)
{
    struct key_row *row;
    HASH_FIND(hh, *head, &key, sizeof key, row);
    *fresh = !row;
    if (!row) {
        row = tool_alloc(1, sizeof *row);
        row->key = key;
        row->index = index;
        HASH_ADD(hh, *head, key, sizeof row->key, row);
    }
    return row;
}

uint32_t model_process(struct model *m, const char *host, int64_t pid)
{
    bool fresh;
    struct key key = {model_intern(m, host), pid, 0};
    uint32_t i = find(&m->tables->processes, key, (uint32_t)m->processes.n, &fresh)->index;
    if (fresh)
        vec_push(&m->processes, ((struct process){.host = key.text, .pid = pid, .rank = -1, .run = MODEL_NONE}));
    return i;
}

uint32_t model_comm(struct model *m, const char *name, uint32_t process)
{
    bool fresh;
    struct key key = {model_intern(m, name), strcmp(name, "?") == 0 ? (int64_t)process + 1 : 0, 0};
    uint32_t i = find(&m->tables->comms, key, (uint32_t)m->comms.n, &fresh)->index;
    if (fresh)
        vec_push(&m->comms, ((struct comm){.name = key.text, .run = MODEL_NONE}));
    return i;
}

uint32_t model_member(struct model *m, uint32_t process, uint32_t comm, int32_t crank)
{
    bool fresh;
    struct key key = {NULL, (int64_t)process << 32 | comm, crank};
    uint32_t i = find(&m->tables->members, key, (uint32_t)m->members.n, &fresh)->index;
    if (fresh) {
        vec_push(&m->members, ((struct member){.process = process, .comm = comm, .crank = crank, .peer = -1}));
        vec_push(&m->comms.at[comm].members, i);
    }
    return i;
}
