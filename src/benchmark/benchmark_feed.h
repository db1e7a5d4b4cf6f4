/*
 * benchmark/benchmark_feed.h -- batches for timed steps: from a data set, or synthetic
 *
 *     td_feed f = { 0 };
 *     TD_TRY(td_feed_open(&opts, &model, &f));         resolves the model's classes and image size
 *     ...compile for f.norm...
 *     for (...)
 *         TD_TRY(td_feed_next(&f, program, &images));  images, labels and targets are bound
 *     TD_TRY(td_feed_check(&f));                       were there too many unreadable images?
 *     td_feed_release(&f);
 */
#ifndef TD_BENCHMARK_BENCHMARK_FEED_H
#define TD_BENCHMARK_BENCHMARK_FEED_H

#include "comm/comm.h"
#include "optim/synthetic_step.h"
#include "tandem/dataset.h"
#include "tandem/input.h"
#include "tandem/loader.h"
#include "tandem/model.h"
#include "tandem/program.h"

typedef struct {
    const td_input_opts *input; /* without `data`, or backend synthetic: synthetic batches */
    int batch;                  /* batch size per rank */
    bool is_training;           /* also bind labels and targets; reads train instead of val */
    const td_device *dev;       /* decides whether images are pixels or floats */
    td_comm *comm;              /* NULL: one rank */
} td_feed_opts;

typedef struct {
    td_feed_opts o;
    td_dataset *ds;
    td_loader *ld; /* NULL: synthetic batches */
    td_synthetic synthetic;
    const td_norm *norm; /* NULL: images are floats */
    bool is_detector;
    double wait_s; /* seconds waited in the last td_feed_next */
} td_feed;

/** Do the options name a data set to read? */
bool td_feed_has_data(const td_input_opts *input);

/**
 * Open the data set, if one is named.  Sets the image size of `model`, and its number of classes if
 * it is 0.  Release *out even after a failure.
 *   TD_ENOTFOUND, TD_EFORMAT  from td_dataset_open
 *   TD_ESHAPE  the data have more classes than the network
 *   TD_EARG    fewer images than a batch
 */
td_status td_feed_open(const td_feed_opts *o, td_model_opts *model, td_feed *out) TD_CHECKED;

/**
 * Read the next full batch, after the end of the data from the beginning; *images
 * f32[batch, C, S, S], or with f->norm u8[batch, S, S, C], valid until the next call.  Binds images
 * to `p` and, for training, labels and targets; `p` NULL: binds nothing.
 */
td_status td_feed_next(td_feed *f, td_program *p, const void **images) TD_CHECKED;

/** The images that the next td_feed_next binds, if they are known: for td_program_send_ahead. */
const void *td_feed_peek(const td_feed *f);

/** TD_EFORMAT: the ranks together found more unreadable images than allowed. */
td_status td_feed_check(const td_feed *f) TD_CHECKED;

void td_feed_release(td_feed *f);

#endif
