/* SPDX-License-Identifier: Apache-2.0 */
/* Turns of a shadow: in the order in which they were taken, whoever comes first; and its end. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <unistd.h>
#include "plugin/hosts/shadow.h"

enum { USERS = 8 };

static struct slr_shadow shadow;
static int order[USERS], users;

static void *use(void *arg)
{
    const uint64_t turn = (uint64_t)(uintptr_t)arg;
    if (slr_shadow_begin(&shadow, turn))
        order[users++] = (int)turn; /* nobody else is in it */
    slr_shadow_over(&shadow, turn);
    return NULL;
}

Test(shadow, in_order)
{
    pthread_t thread[USERS];
    slr_shadow_prepare(&shadow);
    for (int i = 0; i < USERS; i++)
        cr_assert_eq(slr_shadow_take(&shadow), (uint64_t)i);
    for (int i = USERS; i-- > 0;)
        cr_assert_eq(pthread_create(&thread[i], NULL, use, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < USERS; i++)
        pthread_join(thread[i], NULL);
    cr_assert_eq(users, USERS);
    for (int i = 0; i < USERS; i++)
        cr_expect_eq(order[i], i);
}

/* One of which nothing comes lets those behind it go on. */
Test(shadow, skipped)
{
    slr_shadow_prepare(&shadow);
    const uint64_t first = slr_shadow_take(&shadow), second = slr_shadow_take(&shadow);
    slr_shadow_over(&shadow, first);
    cr_expect(slr_shadow_begin(&shadow, second));
    slr_shadow_over(&shadow, second);
}

static void *end_soon(void *arg)
{
    (void)arg;
    usleep(20000);
    slr_shadow_end(&shadow);
    usleep(20000);
    slr_shadow_over(&shadow, 0);
    return NULL;
}

/* Who waits goes on at the end, and the close waits for who is in it. */
Test(shadow, ends)
{
    pthread_t thread;
    slr_shadow_prepare(&shadow);
    slr_shadow_take(&shadow);
    slr_shadow_take(&shadow);
    cr_expect(slr_shadow_begin(&shadow, 0));
    cr_assert_eq(pthread_create(&thread, NULL, end_soon, NULL), 0);
    cr_expect_not(slr_shadow_begin(&shadow, 1));
    slr_shadow_over(&shadow, 1);
    slr_shadow_close(&shadow, true);
    cr_expect_eq(shadow.user, 0);
    pthread_join(thread, NULL);
}
