/* SPDX-License-Identifier: Apache-2.0 */
/* How the parts of a GEMM are chosen (gemm_parts.h).
 *
 * With a wanted number (`split.parts`) the operand is cut into so many parts of equal size, whatever
 * lies where: a part may take the end of one shard and the beginning of the next. Fewer, larger parts
 * than shards fill the device better where a shard's part of C is not a whole number of waves of
 * tiles. Which number is best can only be measured. Borders are multiples of up to 256 columns; the
 * order on a rank is that in which the last bytes of the parts arrive.
 *
 * Without one, every shard is cut alike, the own shard too, and no part lies in two shards:
 *
 *   range i of a shard   its chunks [a, b) (ring.h), as columns: a column across two chunks
 *                        belongs to the later one, and a border within a shard is moved down to a
 *                        multiple of up to 256 columns, so that parts fill whole tiles and begin at
 *                        aligned addresses
 *   part                 one range of one shard
 *   order on a rank      the ranges of the own shard, which wait for nothing; then, range by range,
 *                        those of the shards that arrive at step 1, 2, .. nranks - 1
 *                        (ring.h), each behind the last chunk that it reads
 *
 * How many ranges: few, as each part costs something beyond its columns, but a part can not begin
 * before its data is there, and what arrives last is computed behind the gather. Of all ways to cut
 * a shard between its chunks (eight groups of them when there are more), that one is taken which is
 * expected to be done first, at the pace given and at half of it, added; of equal ones that with
 * the fewest parts. The pace given is a careful one: when all goes well, the data comes twice as
 * fast. The expectation only shapes the parts; each waits for its data, whenever that comes.
 *
 * Parts that are summands follow one another in the order of the ranks' shards on every
 * rank, because the order of a sum decides its bits. They are few, as each reads and writes all of
 * C: the shard of rank 0, which comes last to rank 1, is cut at the borders that are expected to be
 * best for rank 1, and all that lies behind the last border is one part, over several shards. No
 * cut at all may be best: then the GEMM is not worth it. `head` is the time that the gather has had
 * already, beside other GEMMs, in columns' time of this one.
 *
 *   shards    |        0        |    1    |    2    |    3    |
 *   parts     [  a  ][                   b                    ]
 *
 * With a wanted number they are equal parts as well, in the order of the columns.
 *
 * `split.quantum`: every part begins at a multiple of it. Where the shards do not, the operand is cut
 * into equal parts; and where that leaves one part, the GEMM is not worth it. */
#include "kernels/gemm_parts.h"

enum {
    MOST_GROUPS = 8,     /* 2^7 ways to cut are looked through */
    MOST_SUM_GROUPS = 4, /* parts that are summands are few */
    MOST_GRAIN = 256,    /* columns: the widest tiles */
    GRAINS = 8           /* a border is moved by less than an eighth of a group */
};

/* Wider types multiply more slowly: half for TF32, about a tenth for fp64; 8-bit ones twice as
 * fast. */
static double speed_of(size_t elem)
{
    return elem == 1 ? 2 : elem == 2 ? 1 : elem == 4 ? 0.5 : 0.1;
}

double slr_parts_pace(size_t elem, int64_t other, double flop_per_byte)
{
    return other > 0 ? (double)elem * flop_per_byte * speed_of(elem) / (2 * (double)other) : 0;
}

double slr_parts_flop(const struct slr_gemm *gemm)
{
    const size_t elem = slr_gemm_type_bytes(gemm->atype);
    return elem ? 2 * (double)gemm->m * (double)gemm->n * (double)gemm->k * (double)gemm->batch / speed_of(elem) : 0;
}

/* On an H200 a part cost as much as 0.1 to 0.6 million elements of C with an inner size of 8192,
 * and as 0.3 to 0.4 million with 4096 (docs/measurements.md, cublasLtMatmul in parts); a launch
 * takes about 2^31 operations' time. */
double slr_parts_overhead(int64_t other, int64_t inner)
{
    return other > 0 && inner > 0 ? (0x1p18 + 0x1p30 / (double)inner) / (double)other : 0;
}

/* While an element of C in fp32 is read and written, an H100 or H200 with 3.4 or 4.8 TB/s makes about
 * 1300 operations, which are 640 columns. Not hidden behind anything: a careful figure. */
double slr_parts_sum_overhead(size_t elem, double elements)
{
    return elements > 0 ? 640 * speed_of(elem) + 0x1p30 / elements : 0;
}

/* The first column of a shard that lies behind group `group - 1`. */
static int64_t border(const struct slr_parts *walk, uint32_t group)
{
    uint32_t chunk = group * walk->chunks;
    if (group == 0)
        return 0;
    if (group >= walk->groups)
        return walk->split.shard_cols;
    return (int64_t)(slr_plan_chunk_end(&walk->plan, chunk - 1) / walk->split.col_bytes) / walk->grain * walk->grain;
}

/* The chunk that completes the columns before `col` of a shard. */
static uint32_t chunk_of(const struct slr_parts *walk, int64_t col)
{
    size_t last = (size_t)col * walk->split.col_bytes - 1, chunk = last / (walk->plan.piece * walk->plan.group);
    return chunk < walk->plan.chunks ? (uint32_t)chunk : walk->plan.chunks - 1;
}

static bool border_behind(const struct slr_parts *walk, uint32_t group)
{
    return group + 1 >= walk->groups || walk->groups > 64 || (walk->borders >> group & 1);
}

/* Columns' time until the whole GEMM is done. In the ring's order chunk q of all peers comes before
 * chunk q + 1 of any; of a range the first peer's data is there when its last chunk is, the last
 * peer's when the last chunk of all is. */
static double expected(const struct slr_parts *walk, uint64_t borders, double pace, double overhead)
{
    const double peers = walk->nranks - 1, chunk = (double)walk->split.shard_cols / walk->plan.chunks;
    double now = (double)walk->split.shard_cols + (__builtin_popcountll(borders) + 1) * overhead;
    for (uint32_t i = 0, begin = 0; i < walk->groups; i++) {
        if (i + 1 < walk->groups && !(borders >> i & 1))
            continue;
        double end = (double)border(walk, i + 1), part = end - (double)border(walk, begin) + overhead;
        /* When the data of this range is there, for the first peer and for the last. */
        double last = pace * peers * end, first = last - pace * (peers - 1) * chunk;
        now = (now > first ? now : first) + peers * part;
        now = now > last + part ? now : last + part;
        begin = i + 1;
    }
    return now;
}

static void choose_borders(struct slr_parts *walk, double pace)
{
    const double overhead = slr_parts_overhead(walk->split.other, walk->split.rows);
    double least = 0;
    int ranges = 0;
    for (uint64_t borders = 0; borders < 1u << (walk->groups - 1); borders++) {
        double time = expected(walk, borders, pace, overhead) + expected(walk, borders, pace / 2, overhead);
        int here = __builtin_popcountll(borders) + 1;
        if (!ranges || time < least * (1 - 1e-9) || (time < least * (1 + 1e-9) && here < ranges)) {
            least = time;
            ranges = here;
            walk->borders = borders;
        }
    }
}

/* Whether a part of a sum ends behind the group of a shard that is cut. */
static bool sum_ends(const struct slr_parts *walk, uint64_t borders, uint32_t group)
{
    return walk->groups > 64 || (borders >> group & 1);
}

/* As `expected`, of summands on rank 1: each chunk of shard 0 comes there behind those of all other
 * peers. No border: the whole GEMM behind the gather. */
static double sum_expected(const struct slr_parts *walk, uint64_t borders, double pace, double overhead)
{
    const double peers = walk->nranks - 1, shard = (double)walk->split.shard_cols, head = walk->split.head;
    double now = 0, begin = 0, all = pace * peers * shard - head;
    for (uint32_t i = 0; i < walk->groups; i++) {
        if (!sum_ends(walk, borders, i))
            continue;
        double end = (double)border(walk, i + 1), there = pace * peers * end - head;
        now = (now > there ? now : there) + end - begin + overhead;
        begin = end;
    }
    return (now > all ? now : all) + shard * walk->nranks - begin + overhead;
}

static void choose_sum(struct slr_parts *walk, double pace)
{
    const struct slr_gemm_split *split = &walk->split;
    const double overhead =
        slr_parts_sum_overhead(slr_gemm_split_elem(split), (double)split->other * (double)split->rows);
    double least = 0;
    walk->borders = 0;
    for (uint64_t borders = 0; borders < 1u << walk->groups; borders++) {
        double time = sum_expected(walk, borders, pace, overhead) + sum_expected(walk, borders, pace / 2, overhead);
        if (borders && time >= least)
            continue;
        least = time;
        walk->borders = borders;
    }
    walk->cut_shards = walk->borders != 0;
}

static int64_t grain_of(int64_t cols, uint32_t groups)
{
    int64_t grain = 1;
    while (grain < MOST_GRAIN && grain * 2 * GRAINS * groups <= cols)
        grain *= 2;
    return grain;
}

static int64_t split_quantum(const struct slr_gemm_split *split)
{
    return split->quantum > 1 ? split->quantum : 1;
}

struct slr_parts slr_parts_of(const struct slr_plan *plan, const struct slr_gemm_split *split, int rank, int nranks,
                              double pace)
{
    struct slr_parts walk = {
        .plan = *plan, .split = *split, .rank = rank, .nranks = nranks, .borders = UINT64_MAX, .cut_shards = nranks};
    const uint32_t most = split->sums ? MOST_SUM_GROUPS : MOST_GROUPS;
    /* Without a pace every chunk is a range of its own; else at most so many groups are
     * considered. */
    walk.chunks = pace > 0 ? (plan->chunks + most - 1) / most : 1;
    walk.groups = (plan->chunks + walk.chunks - 1) / walk.chunks;
    walk.grain =
        split->parts ? grain_of(split->shard_cols * nranks, split->parts) : grain_of(split->shard_cols, walk.groups);
    /* Shards that do not begin where a part may: equal parts, whatever lies where. */
    if (!walk.split.parts && split->shard_cols % split_quantum(split) != 0)
        walk.split.parts = (uint32_t)(split->sums ? 2 : nranks);
    walk.grain = walk.grain > split_quantum(split) ? walk.grain : split_quantum(split);
    if (pace > 0 && !walk.split.parts && split->sums)
        choose_sum(&walk, pace);
    else if (pace > 0 && !walk.split.parts)
        choose_borders(&walk, pace);
    return walk;
}

/* The next range; behind the own shard's last one the peers' first. */
static bool next_range(struct slr_parts *walk)
{
    if (walk->end >= walk->groups && walk->step > 0)
        return false;
    if (walk->end >= walk->groups) {
        walk->step = 1;
        walk->end = 0;
    } else if (walk->step > 0) {
        walk->step = 1;
    }
    walk->begin = walk->end;
    while (!border_behind(walk, walk->end++))
        ;
    return true;
}

/* Of the shard that arrives at `step`, its first column. */
static int64_t shard_begin(const struct slr_parts *walk, int step)
{
    return (walk->rank + step) % walk->nranks * walk->split.shard_cols;
}

bool slr_part_reads(const struct slr_parts *walk, const struct slr_part *part, int step, uint32_t *chunk)
{
    const int64_t shard = shard_begin(walk, step), cols = walk->split.shard_cols;
    const int64_t end = part->col + part->cols - shard;
    if (end <= 0 || part->col >= shard + cols)
        return false;
    *chunk = chunk_of(walk, end < cols ? end : cols);
    return true;
}

static void range_part(const struct slr_parts *walk, struct slr_part *part)
{
    const int64_t first = border(walk, walk->begin), last = border(walk, walk->end);
    *part = (struct slr_part){.col = shard_begin(walk, walk->step) + first, .cols = last - first};
}

/* ---- equal parts ---- */

static int64_t equal_border(const struct slr_parts *walk, int64_t i)
{
    const int64_t all = walk->split.shard_cols * walk->nranks, parts = walk->split.parts;
    return i >= parts ? all : all * i / parts / walk->grain * walk->grain;
}

static struct slr_part equal_part(const struct slr_parts *walk, int64_t i)
{
    const int64_t first = equal_border(walk, i);
    return (struct slr_part){.col = first, .cols = equal_border(walk, i + 1) - first};
}

/* When the last of what the part reads is there, in the ring's order: 0 for the own shard, which is
 * there. */
static uint64_t arrival(const struct slr_parts *walk, const struct slr_part *part)
{
    uint64_t last = 0;
    for (int step = 1; step < walk->nranks; step++) {
        uint32_t chunk;
        if (slr_part_reads(walk, part, step, &chunk)) {
            uint64_t here = (uint64_t)chunk * (uint64_t)(walk->nranks - 1) + (uint64_t)step;
            last = here > last ? here : last;
        }
    }
    return last;
}

/* The next in the order of arrival; of those that arrive together the first. */
static bool next_equal(struct slr_parts *walk, struct slr_part *part)
{
    uint64_t next = UINT64_MAX;
    for (int64_t i = 0; i < walk->split.parts; i++) {
        const struct slr_part here = equal_part(walk, i);
        if (here.cols <= 0)
            continue;
        const uint64_t key = arrival(walk, &here) << 32 | (uint64_t)i;
        if ((!walk->taken || key > walk->latest) && key < next) {
            next = key;
            *part = here;
        }
    }
    walk->latest = next;
    walk->taken++;
    return next != UINT64_MAX;
}

/* ---- summands ---- */

/* Where the summand ends that begins in the present shard: behind a group of it, or of the last
 * shard. */
static int end_of_summand(const struct slr_parts *walk, uint32_t *group)
{
    *group = walk->groups;
    for (uint32_t i = walk->begin; walk->owner < walk->cut_shards && i < walk->groups; i++)
        if (sum_ends(walk, walk->borders, i)) {
            *group = i + 1;
            return walk->owner;
        }
    return walk->nranks - 1;
}

static bool next_summand(struct slr_parts *walk, struct slr_part *part)
{
    if (walk->owner >= walk->nranks)
        return false;
    uint32_t end;
    const int last = end_of_summand(walk, &end);
    const int64_t shard = walk->split.shard_cols, col = walk->owner * shard + border(walk, walk->begin);
    *part = (struct slr_part){.col = col, .cols = last * shard + border(walk, end) - col};
    walk->begin = end < walk->groups ? end : 0;
    walk->owner = end < walk->groups ? last : last + 1;
    return true;
}

/* In the order of the columns. */
static bool next_equal_summand(struct slr_parts *walk, struct slr_part *part)
{
    if (walk->taken >= walk->split.parts)
        return false;
    *part = equal_part(walk, walk->taken++);
    return true;
}

/* ---- all ---- */

static bool next_range_of_a_shard(struct slr_parts *walk, struct slr_part *part)
{
    if (walk->step > 0 && walk->step + 1 < walk->nranks)
        walk->step++;
    else if (!next_range(walk))
        return false;
    range_part(walk, part);
    return true;
}

/* It may be empty. */
static bool next(struct slr_parts *walk, struct slr_part *part)
{
    if (walk->split.sums)
        return walk->split.parts ? next_equal_summand(walk, part) : next_summand(walk, part);
    return walk->split.parts ? next_equal(walk, part) : next_range_of_a_shard(walk, part);
}

bool slr_parts_next(struct slr_parts *walk, struct slr_part *part)
{
    do {
        if (!next(walk, part))
            return false;
    } while (part->cols <= 0);
    return true;
}

bool slr_parts_several(struct slr_parts walk)
{
    struct slr_part part;
    return slr_parts_next(&walk, &part) && slr_parts_next(&walk, &part);
}
