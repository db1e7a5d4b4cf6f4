/*
 * support/ranks.h -- several ranks of one test: forked processes, connected by socket pairs
 */
#ifndef TEST_SUPPORT_RANKS_H
#define TEST_SUPPORT_RANKS_H

#include "comm/comm.h"

/**
 * Run `body` in `size` processes, each with its place, which is in its environment, too; it returns
 * 0 when all was well, else where it was not.  codes[size]: what each returned, 128 + signal where
 * one was killed.  Fork first, threads later: call it before the process has any.
 */
void td_test_ranks(int size, int (*body)(const td_rank_place *place, void *ctx), void *ctx,
                   int *codes);

#endif
