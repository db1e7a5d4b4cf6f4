/*
 * data/loader_ring.h -- the ring of batches that worker threads prefetch
 *
 *                 work queue: rows                    one queue of length 1 per slot
 *   loader  --- row row row row row --->  workers  --- "slot 0 done" --->  loader
 *     |                                     |                                   |
 *     | names the samples of a batch        | read, decode, crop, resize        | takes slot 0,
 *     | and puts its rows into the queue    | straight into slot.images         | then 1, 2, 0 ...
 *
 *   slots:   [ taken ][ done ][ being made ]           prefetch + 1 of them
 *
 * A slot belongs to the workers from the moment its rows are queued until its `done` queue delivers
 * it, otherwise to the loader.  The worker that finishes the last row of a slot (an atomic count)
 * delivers it.  Before a worker begins a row, it asks the system to prefetch the image of that row
 * in the next batch, so that the disk works while the current image is decoded.
 *
 * What depends on order (the permutation of an epoch) is done by the loader's thread, so that it
 * does not depend on which worker was faster.
 */
#ifndef TD_DATA_LOADER_RING_H
#define TD_DATA_LOADER_RING_H

#include <stdatomic.h>

#include "base/threads.h"
#include "data/bad_images.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "data/sizes.h"
#include "transforms/anchor_rows.h"
#include "transforms/augment.h"

/** The sources of rows, and the rows of each batch.  Made and owned by the loader. */
typedef struct {
    const td_dataset *ds;
    td_loader_opts opts;    /* with defaults filled in */
    td_transform transform; /* its size is the largest; a row's is its slot's */
    td_anchors *anchors;    /* NULL: no detector */
    td_sizes sizes;         /* by epoch */
    td_sampler sampler;
    int64_t n_batches;   /* of an epoch */
    int64_t n_tries;     /* samples tried for a row before it is left empty */
    size_t images_bytes; /* of a batch of the largest size */
} td_load_plan;

typedef struct td_slot td_slot;

typedef struct {
    td_slot *home;
    int i;            /* row of the batch */
    int64_t wanted;   /* sample */
    int64_t ahead;    /* the sample of this row in the batch after; -1: none */
    int64_t got;      /* the sample in the row; -1: none */
    td_bad_notes bad; /* samples that were tried before it */
    td_status st;     /* a failure not caused by an image */
    char *error;
} td_row;

struct td_slot {
    float *images; /* [batch, 3, size, size] with room for the largest, from td_pages_alloc */
    int size;
    td_anchor_rows anchors;                     /* of detectors */
    td_row *rows;                               /* [batch] */
    int64_t *wanted, *ahead, *labels, *samples; /* [batch]; the last two are for the loader */
    int n;
    int64_t epoch, index;
    atomic_int n_left; /* rows not yet finished */
    atomic_llong work_ns;
    td_queue *done;
};

typedef struct td_ring td_ring;

/**
 * Start the workers.  The plan is kept; the ring alone uses its sampler from here on.
 * TD_ENOMEM, TD_EIO.
 */
TD_CHECKED td_status td_ring_new(td_load_plan *plan, td_ring **out);
void td_ring_free(td_ring *r);

/** Drop what is queued; the next slot is the first batch of this epoch. */
void td_ring_restart(td_ring *r, int64_t epoch);

/**
 * Queue batches while there are free slots.  Training continues into the next epoch; an
 * evaluation ends with `epoch`, since it may be the last.
 */
void td_ring_fill(td_ring *r, int64_t epoch);

/** Wait for the next slot.  It is the caller's until td_ring_give_back. */
td_slot *td_ring_take(td_ring *r);
void td_ring_give_back(td_ring *r);

/** Floats of a row of this slot. */
size_t td_slot_row_floats(const td_slot *s);

/** Clear the workers' notes in the slot's rows. */
void td_slot_clear_rows(td_slot *s);

#endif
