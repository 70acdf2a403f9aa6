/* SPDX-License-Identifier: Apache-2.0 */
/* Streams on which one thread works at a time (product.h).
 *
 * Something is written before its stream has come to the call that writes it. All that stands on the stream has been
 * seen to, but for what another thread puts there between the GEMM and the call: it may have passed the gate before the
 * GEMM, and come to the driver behind it. What it uses there can be free by the time of the call, and be what is
 * written, as a framework's allocator knows of that thread's stream order, and the gate does not.
 *
 * So the gate is kept open from the first time on that a stream is asked for, and all who pass it are seen. The stream
 * is that thread's who has put something there last, or on a default stream, in whatever context. Before the GEMM, all
 * who have had it before have to be asleep: a forward and a backward pass work on one stream in turn, and the thread of
 * the one sleeps while the other runs. Whoever is between the gate and the driver runs, or would, or is stopped by a
 * debugger; but for one that waits for a lock of the driver's, which the calling thread has to take as well to put the
 * GEMM there. Who has passed the closed gate shows nowhere: the first EARLIER times the answer is no. A thread that is
 * held up for so long between two instructions, as by a debugger, and then works on that stream, is not served.
 *
 * A stream of more than THREADS threads, or one that changes hands TURNS times without having been of use, is
 * nobody's for good, and does not keep the gate open. Of a stream for which nothing is asked any more, as NCCL has been
 * chosen, the gate is closed again, and all is forgotten. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/real.h"
#include "plugin/comm/stream.h"
#include "plugin/produce/product.h"

enum { STREAMS = 8, THREADS = 4, EARLIER = 2, TURNS = 64, UNASKED = 1 << 16 };

struct solo {
    CUstream stream;     /* as slr_stream_name() calls it */
    int thread[THREADS]; /* that have worked on it, the one that does now first */
    unsigned threads;    /* 0: there are too many, or too many turns */
    unsigned turns;      /* since it was of use */
    uint64_t turn;       /* of all there have been, which */
    unsigned asked;
    bool alone;       /* in this turn, the others have been found asleep */
    unsigned unasked; /* operations since the latest */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* innermost */
static struct solo solos[STREAMS];
static unsigned known;
static uint64_t turns;
static _Atomic unsigned alone; /* of these, that are not nobody's */

static int own_thread(void)
{
    static _Thread_local int id __attribute__((tls_model("initial-exec")));
    if (!id)
        id = (int)syscall(SYS_gettid);
    return id;
}

/* Under the lock. */
static void count_alone(int change)
{
    atomic_fetch_add(&alone, (unsigned)change);
    atomic_fetch_add(&slr_gate_word, (unsigned)change);
}

/* Under the lock. */
static void give_up(struct solo *s)
{
    s->threads = 0;
    count_alone(-1);
}

/* Under the lock: the calling thread works on it. */
static void work_on(struct solo *s)
{
    const int own = own_thread();
    unsigned i = 0;
    if (s->threads == 0 || s->thread[0] == own)
        return;
    while (i < s->threads && s->thread[i] != own)
        i++;
    if (i == THREADS || ++s->turns > TURNS) {
        give_up(s);
        return;
    }
    s->threads += i == s->threads;
    s->thread[i] = s->thread[0];
    s->thread[0] = own;
    s->turn = ++turns;
    s->alone = false;
}

/* Default streams make others wait, and wait for them. */
static bool ordered(CUstream a, CUstream b)
{
    return a == b || slr_stream_is_default(a) || slr_stream_is_default(b);
}

void slr_solo_note(CUstream stream)
{
    if (atomic_load_explicit(&alone, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < known; i++)
        if (ordered(solos[i].stream, stream))
            work_on(&solos[i]);
    for (unsigned i = 0; i < known; i++)
        if (solos[i].threads && ++solos[i].unasked > UNASKED) {
            solos[i] = solos[--known];
            count_alone(-1);
        }
    pthread_mutex_unlock(&lock);
}

/* Under the lock. NULL: there are too many. */
static struct solo *solo_of(CUstream stream)
{
    for (unsigned i = 0; i < known; i++)
        if (solos[i].stream == stream)
            return &solos[i];
    if (known == STREAMS)
        return NULL;
    solos[known] = (struct solo){.stream = stream, .thread = {own_thread()}, .threads = 1, .turn = ++turns};
    count_alone(1);
    return &solos[known++];
}

/* What the kernel says of a thread of this process: 'S', 'R', ...; 'X': there is none; 0: it can not be told. */
static char state_of(int thread)
{
    char path[48], text[128] = "";
    if (syscall(SYS_tgkill, getpid(), thread, 0) != 0)
        return errno == ESRCH ? 'X' : 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    const char *name_ends = n > 0 ? strrchr(text, ')') : NULL;
    return name_ends && name_ends[1] == ' ' ? name_ends[2] : 0;
}

/* Under the lock. */
static bool others_sleep(const struct solo *s)
{
    for (unsigned i = 1; i < s->threads; i++) {
        const char state = state_of(s->thread[i]);
        if (state != 'S' && state != 'X')
            return false;
    }
    return true;
}

/* Under the lock. */
static bool is_alone(struct solo *s)
{
    s->unasked = 0;
    if (s->threads == 0 || ++s->asked <= EARLIER)
        return false;
    s->alone = s->alone || others_sleep(s);
    s->turns = s->alone ? 0 : s->turns;
    return s->alone;
}

uint64_t slr_solo_turn(CUstream stream)
{
    const int error = errno;
    pthread_mutex_lock(&lock);
    struct solo *s = solo_of(stream);
    if (s)
        work_on(s);
    const uint64_t turn = s && is_alone(s) ? s->turn : 0;
    pthread_mutex_unlock(&lock);
    errno = error;
    return turn;
}

bool slr_solo_still(CUstream stream, uint64_t turn)
{
    bool still = false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < known; i++)
        still |= solos[i].stream == stream && solos[i].threads > 0 && solos[i].turn == turn &&
                 solos[i].thread[0] == own_thread();
    pthread_mutex_unlock(&lock);
    return still;
}
