/*
 * synthetic.c -- no data at all: one fixed batch of N(0, 1) noise with random labels
 *
 * The loader makes the batch once and lends it again and again, so that what is measured with it is
 * the network alone.
 */
#include "base/rng.h"
#include "data/source.h"

enum { CLASSES = 1000, IMAGES = 1024 };

void td_synthetic_fill(const td_dataset *ds, uint64_t seed, int64_t first, int n, int size,
                       float *images, int64_t *labels)
{
    size_t row = 3 * (size_t)size * (size_t)size;
    for (int i = 0; i < n; i++) {
        td_rng r = td_rng_make(seed, TD_RNG_SYNTH, 0, (uint64_t)(first + i));
        labels[i] = (int64_t)td_rng_below(&r, (uint64_t)ds->n_classes);
        float *x = images + row * (size_t)i;
        for (size_t k = 0; k < row; k++)
            x[k] = (float)td_rng_normal(&r);
    }
}

static td_status synthetic_open(const td_dataset_opts *opts, td_dataset *ds)
{
    ds->root = "synthetic";
    ds->n = opts->n_images ? opts->n_images : IMAGES;
    return td_dataset_number_classes(ds, opts->n_classes ? opts->n_classes : CLASSES);
}

static const char *const names[] = { "synthetic", "syntetic", NULL };

const td_source td_source_synthetic = { .names = names, .open = synthetic_open };
