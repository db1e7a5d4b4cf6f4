/*
 * comm/gather.h -- what each image of a pass came to, put together from the ranks that had them
 *
 *     TD_TRY(td_gather_begin(&s, sample));                    for each image
 *     TD_TRY(td_gather_put(&s, logits, n * sizeof *logits));  as often as one likes
 *     TD_TRY(td_gather_run(&s, comm));                        rank 0 has all, the others none
 *
 * Rank 0 then has the images in the order of the data set, which is the one that a run of one
 * rank meets them in: what is made of them is the same, byte by byte.
 */
#ifndef TD_COMM_GATHER_H
#define TD_COMM_GATHER_H

#include "comm/comm.h"

/** An image: its index in the data set, and how many bytes are its own. */
typedef struct {
    int64_t sample, n_bytes;
} td_gather_sample;

/** All zero is a valid empty one. */
typedef struct {
    td_gather_sample *images; /* [n] */
    size_t n, cap;
    char *bytes; /* [n_bytes], one image's behind the other's; aligned as td_alloc does */
    size_t n_bytes, cap_bytes;
} td_gather;

/** An image more, and bytes of the last one.  TD_ENOMEM. */
TD_CHECKED td_status td_gather_begin(td_gather *s, int64_t sample);
TD_CHECKED td_status td_gather_put(td_gather *s, const void *bytes, size_t n);

/**
 * Everybody's to rank 0; every rank calls it.  Rank 0 needs room for all and for the largest share
 * of another; of one rank (NULL) nothing changes.  TD_EDEVICE a rank was lost; TD_ENOMEM.
 */
TD_CHECKED td_status td_gather_run(td_gather *s, td_comm *c);

/** Empty it: for another pass, or for good. */
void td_gather_clear(td_gather *s);
void td_gather_release(td_gather *s);

#endif
