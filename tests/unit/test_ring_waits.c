/* SPDX-License-Identifier: Apache-2.0 */
/* When the device waits for a peer (kernels/ring_words.c: slr_ring_waits), by the words alone. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/flags.h"
#include "kernels/ring.h"

enum { ME = 0, RANKS = 3, ISSUED = 10 };

static struct slr_ring ring;

static void say_ready(int owner, int reader, uint32_t piece, uint32_t settled)
{
    atomic_store(slr_flag_ready(ring.flags, RANKS, owner, reader), slr_ready_value(piece, settled));
}

static void say(enum slr_flag_kind kind, int owner, int reader, uint32_t piece)
{
    atomic_store(slr_flag(ring.flags, RANKS, kind, owner, reader), piece);
}

/* All have given and read what there was up to piece 8; two more have been enqueued. */
static void behind_other_work(void)
{
    memset(&ring, 0, sizeof ring);
    ring.rank = ME;
    ring.nranks = RANKS;
    ring.flags = calloc(1, slr_flags_bytes(RANKS));
    cr_assert(ring.flags);
    atomic_store(&ring.issued, ISSUED);
    for (int owner = 0; owner < RANKS; owner++)
        for (int reader = 0; reader < RANKS; reader++) {
            say_ready(owner, reader, 8, 0);
            say(SLR_FLAG_DONE, owner, reader, 8);
        }
}

static void end(void)
{
    free(ring.flags);
}

TestSuite(ring_waits, .init = behind_other_work, .fini = end);

Test(ring_waits, a_gather_that_has_not_begun_waits_for_nobody)
{
    cr_assert_not(slr_ring_complete(&ring));
    cr_assert_not(slr_ring_waits(&ring));
}

Test(ring_waits, peers_that_are_ahead_are_not_waited_for)
{
    for (int peer = 1; peer < RANKS; peer++) {
        say_ready(peer, ME, 12, 0);
        say(SLR_FLAG_OPEN, ME, peer, 11);
    }
    cr_assert_not(slr_ring_waits(&ring));
    say_ready(ME, 1, ISSUED, 0);
    cr_assert_not(slr_ring_waits(&ring), "it has come to the last piece, and all have given it");
}

/* Whatever it has said, and to whomever, one peer has not given the piece. */
Test(ring_waits, a_word_of_a_piece_that_a_peer_has_not_given)
{
    say_ready(ME, 1, 9, 0);
    cr_assert(slr_ring_waits(&ring));
    say_ready(1, ME, 9, 0);
    cr_assert(slr_ring_waits(&ring), "the other one has not");
    say_ready(2, ME, 9, 0);
    cr_assert_not(slr_ring_waits(&ring));
    say(SLR_FLAG_OPEN, 1, ME, 10);
    cr_assert(slr_ring_waits(&ring));
    say(SLR_FLAG_OPEN, 1, ME, 9);
    say(SLR_FLAG_DONE, 2, ME, 10);
    cr_assert(slr_ring_waits(&ring));
}

Test(ring_waits, raised_words_say_nothing)
{
    struct slr_ring peer = ring;
    for (peer.rank = 1; peer.rank < RANKS; peer.rank++)
        slr_ring_release(&peer, ME);
    cr_assert_not(slr_ring_waits(&ring));
    say_ready(ME, 1, 9, 0);
    cr_assert(slr_ring_waits(&ring));
}

Test(ring_waits, a_correction_that_does_not_come)
{
    for (int peer = 1; peer < RANKS; peer++)
        say_ready(peer, ME, ISSUED, 0);
    atomic_store(&ring.expected[2], slr_ready_value(ISSUED, 1));
    cr_assert_not(slr_ring_waits(&ring), "it has not come to that gather");
    say_ready(ME, 1, ISSUED, 0);
    cr_assert(slr_ring_waits(&ring));
    struct slr_ring peer = ring;
    for (peer.rank = 1; peer.rank < RANKS; peer.rank++)
        slr_ring_release(&peer, ME);
    cr_assert_not(slr_ring_waits(&ring));
    say_ready(ME, 1, ISSUED, 0);
    say_ready(2, ME, ISSUED, 1);
    cr_assert_not(slr_ring_waits(&ring));
}
