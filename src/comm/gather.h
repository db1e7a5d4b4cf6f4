/*
 * comm/gather.h -- gathers per-image results of a pass from all ranks
 *
 *     TD_TRY(td_gather_begin(&s, sample));                    for each image
 *     TD_TRY(td_gather_put(&s, logits, n * sizeof *logits));  any number of times
 *     TD_TRY(td_gather_run(&s, comm));                        rank 0 has all, the others none
 *
 * Rank 0 then has the images in the order of the data set, as in a run of one rank: results
 * computed from them are byte-identical.
 */
#ifndef TD_COMM_GATHER_H
#define TD_COMM_GATHER_H

#include "comm/comm.h"

/** An image: its index in the data set, and the number of its bytes. */
typedef struct {
    int64_t sample, n_bytes;
} td_gather_sample;

/** All zero is a valid empty object. */
typedef struct {
    td_gather_sample *images; /* [n] */
    size_t n, cap;
    char *bytes; /* [n_bytes], image after image; aligned as by td_alloc */
    size_t n_bytes, cap_bytes;
} td_gather;

/** Begin another image; append bytes to the last one.  TD_ENOMEM. */
TD_CHECKED td_status td_gather_begin(td_gather *s, int64_t sample);
TD_CHECKED td_status td_gather_put(td_gather *s, const void *bytes, size_t n);

/**
 * Send everything to rank 0; every rank calls it.  Rank 0 needs memory for all and for the largest
 * part of another rank; with one rank (NULL) nothing changes.  TD_EDEVICE a rank was lost;
 * TD_ENOMEM.
 */
TD_CHECKED td_status td_gather_run(td_gather *s, td_comm *c);

/** Empty it: and free its memory. */
void td_gather_clear(td_gather *s);
void td_gather_release(td_gather *s);

#endif
