/*
 * boxes/nms_pick.h -- the largest of very many numbers, in one pass over them
 *
 *     td_picks p = { 0 };
 *     TD_TRY(td_picks_take(&p, x, n, floor, 1000));      p.at[0 .. p.n): all i with x[i] >= p.least
 *     td_picks_release(&p);
 */
#ifndef TD_BOXES_NMS_PICK_H
#define TD_BOXES_NMS_PICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    float value;
    uint32_t index;
} td_pick;

typedef struct {
    td_pick *at; /* in no order */
    size_t n, cap;
    size_t limit; /* when n reaches it, the smallest are dropped */
    float least;
    bool is_all; /* all numbers at or above the floor were picked */
} td_picks;

/**
 * Pick every x[i] >= least, where `least` is `floor` or a threshold that leaves about `wanted` of
 * them, seldom fewer than half.  NaN is never picked.  n < 2^32.  TD_ENOMEM.
 */
TD_CHECKED td_status td_picks_take(td_picks *p, const float *x, size_t n, float floor,
                                   size_t wanted);

void td_picks_release(td_picks *p);

#endif
