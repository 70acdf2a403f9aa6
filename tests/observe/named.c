/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that name what they do with NVTX ranges; plain NCCL and NVTX as a user writes them.
 *
 *   named RANKS CASE [STEPS]
 *
 *   layers    STEPS steps, each in "step N": in "layer 0" to "layer 2" a gather of one size in the range "attn" of the
 *             domain "lib", a small one in "norm", and behind them a reduce-scatter in "grad"
 *   group     as layers, without the small ones and the reduce-scatter; each gather in a group of its own that ends when
 *             its ranges have been left
 *   odd       eight gathers of one size in ranges whose names are odd, and eight small ones of another
 *   many      gathers of 300 sizes, each in a range
 *   plain     no ranges: gathers of one size from two functions, in turn, STEPS times
 *
 * TEST_REAL_NVTX: with NVTX's own headers. */
#include <string.h>
#include <wchar.h>
#include "../programs/ranks.h"

#ifdef TEST_REAL_NVTX
#include <nvtx3/nvToolsExt.h>
#else
#include "named_nvtx_own.h"
#endif

enum { LAYERS = 3, LARGE = 4096, SMALL = 64, SIZES = 300 }; /* floats of a rank */

struct plan {
    const char *name;
    int steps;
};

struct work {
    struct rank *r;
    float *send, *recv[LAYERS], *sum;
    nvtxDomainHandle_t lib;
    nvtxStringHandle_t attn;
};

static void gather(const struct work *w, int layer, size_t count)
{
    NCCL(ncclAllGather(w->send, w->recv[layer], count, ncclFloat32, w->r->comm, w->r->stream));
}

static nvtxEventAttributes_t event(int type)
{
    nvtxEventAttributes_t e;
    memset(&e, 0, sizeof e);
    e.version = NVTX_VERSION;
    e.size = (uint16_t)NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    e.messageType = type;
    return e;
}

static void push_number(const char *what, int n)
{
    char name[64];
    snprintf(name, sizeof name, "%s %d", what, n);
    nvtxRangePushA(name);
}

static void push_attn(const struct work *w)
{
    nvtxEventAttributes_t e = event(NVTX_MESSAGE_TYPE_REGISTERED);
    e.message.registered = w->attn;
    nvtxDomainRangePushEx(w->lib, &e);
}

static void layers(const struct work *w)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        push_number("layer", layer);
        push_attn(w);
        gather(w, layer, LARGE);
        nvtxDomainRangePop(w->lib);
        nvtxRangePushW(L"norm");
        gather(w, layer, SMALL);
        nvtxRangePop();
        nvtxRangePop();
    }
    nvtxEventAttributes_t e = event(NVTX_MESSAGE_TYPE_ASCII);
    e.message.ascii = "grad";
    nvtxRangePushEx(&e);
    NCCL(ncclReduceScatter(w->recv[0], w->sum, LARGE, ncclFloat32, ncclSum, w->r->comm, w->r->stream));
    nvtxRangePop();
}

static void grouped(const struct work *w)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        push_number("layer", layer);
        NCCL(ncclGroupStart());
        gather(w, layer, LARGE);
        nvtxRangePop();
        NCCL(ncclGroupEnd());
    }
}

static void odd(const struct work *w, size_t count)
{
    char longest[5000];
    nvtxEventAttributes_t e = event(NVTX_MESSAGE_TYPE_UNICODE);
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    const char *const names[] = {longest, "\x01\x1b[31m\r\n\t\"\\ \x7f", "\xff\xfe\xc3(", "",
                                 "gr\u00f6\u00dfer \u20ac"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        nvtxRangePushA(names[i]);
        gather(w, 0, count);
        nvtxRangePop();
    }
    e.message.unicode = L"wide \u20ac";
    nvtxRangePushEx(&e);
    for (int i = 0; i < 100; i++)
        push_number("deep", i);
    gather(w, 0, count);
    for (int i = 0; i < 105; i++) /* more than there are */
        nvtxRangePop();
    gather(w, 0, count);
    push_number("after", 1);
    gather(w, 0, count);
    nvtxRangePop();
}

static void many(const struct work *w)
{
    for (int i = 1; i <= SIZES; i++) {
        push_number("size", i);
        gather(w, 0, (size_t)i);
        nvtxRangePop();
    }
}

/* Not inlined, nor ended by a jump: their own frames are what is looked for. */
#if __has_attribute(noipa)
#define PLACE __attribute__((noinline, noipa, visibility("default")))
#else
#define PLACE __attribute__((noinline, visibility("default")))
#endif
PLACE void first_place(const struct work *w);
PLACE void second_place(const struct work *w);
static volatile int called;

void first_place(const struct work *w)
{
    gather(w, 0, LARGE);
    called++;
}

void second_place(const struct work *w)
{
    gather(w, 1, LARGE);
    called++;
}

static void body(struct rank *r)
{
    const struct plan *p = r->arg;
    struct work w = {.r = r};
    const size_t shard = LARGE * sizeof(float);
    w.lib = nvtxDomainCreateA("lib");
    w.attn = nvtxDomainRegisterStringA(w.lib, "attn");
    rank_open(r);
    CUDA(cudaMalloc((void **)&w.send, shard));
    CUDA(cudaMalloc((void **)&w.sum, shard));
    CUDA(cudaMemset(w.send, 0, shard));
    CUDA(cudaDeviceSynchronize()); /* streams of ranks do not wait for the legacy one */
    for (int i = 0; i < LAYERS; i++)
        CUDA(cudaMalloc((void **)&w.recv[i], shard * (size_t)r->nranks));
    for (int step = 0; step < p->steps; step++) {
        push_number("step", step);
        if (strcmp(p->name, "layers") == 0)
            layers(&w);
        if (strcmp(p->name, "group") == 0)
            grouped(&w);
        nvtxRangePop();
        if (strcmp(p->name, "plain") == 0) {
            first_place(&w);
            second_place(&w);
        }
    }
    if (strcmp(p->name, "odd") == 0) {
        odd(&w, LARGE);
        odd(&w, SMALL);
    }
    if (strcmp(p->name, "many") == 0)
        many(&w);
    CUDA(cudaStreamSynchronize(r->stream));
    rank_close(r);
}

int main(int argc, char **argv)
{
    struct plan plan = {.name = argc > 2 ? argv[2] : "", .steps = argc > 3 ? atoi(argv[3]) : 0};
    if (argc < 3)
        DIE(2, "usage: named RANKS CASE [STEPS]");
    return ranks_run(atoi(argv[1]), 120, body, &plan);
}
