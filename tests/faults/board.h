/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of one fault test share: a page that launch.c makes and every rank maps. It carries NCCL's unique
 * id from rank 0 to the others and lets ranks say how far they have got, so that faults happen at a known moment and
 * not after a guessed time. Plain words and polling: nothing here can hang because a rank was killed.
 */
#ifndef TESTS_FAULTS_BOARD_H
#define TESTS_FAULTS_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BOARD_RANKS 16
#define BOARD_FD_ENV "FAULT_BOARD"
#define BOARD_RANK_ENV "FAULT_RANK"
#define BOARD_NRANKS_ENV "FAULT_NRANKS"

struct board {
    _Atomic uint32_t id_there;
    _Atomic uint32_t root_listens; /* stage.c */
    char id[128];
    _Atomic uint32_t mark[BOARD_RANKS]; /* only grows */
    _Atomic int32_t pid[BOARD_RANKS];
};

/* The page, mapped at the first call; NULL outside launch. */
struct board *board(void);

/* A number from the environment; `otherwise` when it is not there. */
int board_env(const char *name, int otherwise);

void board_sleep_ms(int ms);

/* True once *word >= value; false after `ms` milliseconds. */
bool board_wait(const _Atomic uint32_t *word, uint32_t value, int ms);

/* True once every rank but `except` (-1: none) has reached `value`. */
bool board_wait_all(int nranks, int except, uint32_t value, int ms);

#endif
