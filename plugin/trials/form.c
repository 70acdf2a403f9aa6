/* SPDX-License-Identifier: Apache-2.0 */
/* The form of a size: which of an iteration's calls of that size come behind which GEMM.
 *
 * A call's context (find.c) tells calls apart by the sizes before them. Where all are of one size, as the all-reduces of
 * tensor parallel layers, forward and backward, it does not; but the GEMM that computes what is sent does, and the ring
 * may be right for the one and NCCL for the other. What a rank sees of its GEMMs may not decide (R1). So rank 0 watches,
 * and tells all in which period the size's GEMMs come and which; from the call on at which that holds (comm/agreed_change.h)
 * the number of a call of the size says which GEMM is expected there, the same on all ranks, and that is part of its
 * context. Where the program does otherwise, a call counts as a site that it is none of: it goes that one's way, on all
 * ranks; rank 0 looks again when a quarter of an iteration's calls did, behind half as many calls more each time.
 *
 * Rank 0 does it for reduce-scatters and all-reduces: of gathers the GEMM comes behind. Not where calls share groups:
 * then the GEMM stays whole, and what the program takes is all that is known of them. */
#include <stdlib.h>
#include "plugin/trials/trials_impl.h"

#define LEAST 96u /* calls of the size that tell an iteration from a layer */

static uint16_t name_of(uint64_t gemm)
{
    return gemm ? (uint16_t)(gemm >> 48 | 1) : 0;
}

const struct slr_trial_form *slr_form_of(const struct slr_trial_choice *choice, size_t shard,
                                         const struct slr_collective *kind)
{
    for (uint32_t i = 0; i < choice->forms; i++)
        if (choice->form[i].shard == shard && choice->form[i].kind == (int32_t)kind->id)
            return &choice->form[i];
    return NULL;
}

uint16_t slr_form_at(const struct slr_trial_form *form, uint64_t number)
{
    return form->gemm[(number - form->from) % form->period];
}

void slr_form_note(struct slr_trials *t, struct slr_trial_site *first, uint64_t gemm)
{
    const struct slr_trial_form *form = slr_form_of(&t->coming, first->shard, first->kind);
    if (first->in_all == 1)
        first->gemms = calloc(1, sizeof *first->gemms);
    if (!first->gemms)
        return;
    slr_trial_calls_add(first->gemms, gemm);
    first->off += form && slr_form_at(form, first->in_all - 1) != name_of(gemm);
}

/* Of the calls that are kept, which are all before the one that is being made: of the latest period. */
static struct slr_trial_form made_of(const struct slr_trial_site *first, uint32_t period)
{
    struct slr_trial_form form = {.shard = first->shard,
                                  .kind = (int32_t)first->kind->id,
                                  .period = period,
                                  .from = first->gemms->calls - period};
    for (uint32_t i = 0; i < period; i++)
        form.gemm[i] = name_of(first->gemms->call[(form.from + i) % SLR_TRIAL_LATEST_CALLS]);
    return form;
}

static bool has_several(const struct slr_trial_form *form)
{
    for (uint32_t i = 1; i < form->period; i++)
        if (form->gemm[i] != form->gemm[0])
            return true;
    return false;
}

/* Into the place of the one before. */
static bool put(struct slr_trial_choice *choice, const struct slr_trial_form *form)
{
    uint32_t i = 0;
    while (i < choice->forms && (choice->form[i].shard != form->shard || choice->form[i].kind != form->kind))
        i++;
    if (i == SLR_TRIAL_FORMS)
        return false;
    choice->forms += i == choice->forms;
    choice->form[i] = *form;
    return true;
}

bool slr_form_look(const struct slr_trials *t, struct slr_trial_site *first, struct slr_trial_choice *choice)
{
    const struct slr_trial_form *before = slr_form_of(&t->coming, first->shard, first->kind);
    if (!first->gemms || first->in_all < LEAST || first->in_all < first->look ||
        (before && first->off * 4 < before->period) || slr_trials_is_grouped(first))
        return false;
    first->look = first->in_all + first->in_all / 2;
    first->off = 0;
    const uint32_t period = slr_trial_calls_period(first->gemms, LEAST);
    if (!period || period > SLR_FORM_PERIOD)
        return false;
    const struct slr_trial_form form = made_of(first, period);
    return (before || has_several(&form)) && put(choice, &form);
}

void slr_form_close(struct slr_trials *t)
{
    for (unsigned i = 0; i < t->sites; i++)
        free(t->site[i].gemms);
}
