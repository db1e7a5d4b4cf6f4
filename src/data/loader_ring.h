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
 * The loader's thread does what depends on order (the permutation of an epoch), so that the result
 * does not depend on the speed of workers.
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

/** The sources of rows, and the rows of each batch.  Created and owned by the loader. */
typedef struct {
    const td_dataset *ds;
    td_loader_opts opts;    /* with defaults filled in */
    td_transform transform; /* with the largest size; a row has the size of its slot */
    td_anchors *anchors;    /* NULL: not for a detector */
    td_sizes sizes;         /* sizes by epoch */
    td_sampler sampler;
    int64_t n_batches;   /* batches per epoch */
    int64_t n_tries;     /* samples tried before a row remains empty */
    size_t value_bytes;  /* of a channel of a pixel: 4, or 1 with transform.as_bytes */
    size_t images_bytes; /* bytes of a batch of the largest size */
} td_load_plan;

typedef struct td_slot td_slot;

typedef struct {
    td_slot *slot;
    int i;               /* index of the row in the batch */
    int64_t sample;      /* the sample that belongs in the row */
    int copy;            /* which of its copies in this epoch, from 0 */
    int64_t next_sample; /* the sample of this row in the next batch; -1: none */
    int64_t used_sample; /* the sample in the row; -1: none */
    td_bad_notes bad;    /* bad samples tried before `used_sample` */
    td_status st;        /* a failure not caused by an image */
    char *error;
} td_row;

struct td_slot {
    char *images; /* f32[batch, C, size, size] or u8[batch, size, size, C], with room for the
                     largest, from td_pages_alloc */
    int size;
    td_anchor_rows anchors;              /* for detectors */
    td_row *rows;                        /* [batch] */
    int64_t *row_samples, *next_samples; /* [batch] */
    int64_t *labels, *samples;           /* [batch], for the loader */
    int n;
    int64_t epoch, index;
    atomic_int n_left; /* rows not yet finished */
    atomic_llong work_ns;
    td_queue *done;
};

typedef struct td_ring td_ring;

/**
 * Start the workers.  `plan` is borrowed until td_ring_free; only the ring may use its sampler.
 * TD_ENOMEM, TD_EIO.
 */
TD_CHECKED td_status td_ring_new(td_load_plan *plan, td_ring **out);
void td_ring_free(td_ring *r);

/** Drop queued batches; the next slot is the first batch of this epoch. */
void td_ring_restart(td_ring *r, int64_t epoch);

/**
 * Queue batches while there are free slots.  Training continues into the next epoch; an
 * evaluation ends with `epoch`, since it may be the last.
 */
void td_ring_fill(td_ring *r, int64_t epoch);

/** Wait for the next slot, which the caller may use until td_ring_release_slot. */
td_slot *td_ring_take_slot(td_ring *r);
void td_ring_release_slot(td_ring *r);

/** The slot after the one that is taken, if it is finished and every row has an image; else NULL.
    It still has to be taken. */
const td_slot *td_ring_peek_slot(td_ring *r);

/** Bytes of the image of a row of this slot. */
size_t td_slot_row_bytes(const td_load_plan *p, const td_slot *s);

/** Clear the workers' notes in the slot's rows. */
void td_slot_clear_rows(td_slot *s);

#endif
