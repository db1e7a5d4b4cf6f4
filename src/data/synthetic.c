/*
 * synthetic.c -- synthetic data: one fixed batch of N(0, 1) noise with random labels
 *
 * The loader generates the batch once and returns it every time, so that benchmarks measure only
 * the network.
 */
#include "base/rng.h"
#include "data/objects.h"
#include "data/source.h"

enum {
    CLASSES = 1000,
    IMAGES = 1024,
    OBJECT_CLASSES = 80,
    OBJECTS = 8,   /* per image; COCO has 7 on average */
    PIXELS = 1000, /* side of the annotated image */
    ANNOTATED_MAX = 1 << 20
};

void td_synthetic_fill(const td_dataset *ds, uint64_t seed, int64_t first, int n, size_t row,
                       float *images, int64_t *labels)
{
    for (int i = 0; i < n; i++) {
        td_rng r = td_rng_make(seed, TD_RNG_SYNTH, 0, (uint64_t)(first + i));
        labels[i] = (int64_t)td_rng_below(&r, (uint64_t)ds->n_classes);
        float *x = images + row * (size_t)i;
        for (size_t k = 0; k < row; k++)
            x[k] = (float)td_rng_normal(&r);
    }
}

/* A random box with sides of 5 .. 60 % of the image's. */
static td_annotation random_object(td_rng *r, int64_t id, int n_classes)
{
    td_annotation a = { .id = id, .label = 1 + (int)td_rng_below(r, (uint64_t)n_classes) };
    a.width = PIXELS * (0.05 + 0.55 * td_rng_uniform(r));
    a.height = PIXELS * (0.05 + 0.55 * td_rng_uniform(r));
    a.x = (PIXELS - a.width) * td_rng_uniform(r);
    a.y = (PIXELS - a.height) * td_rng_uniform(r);
    a.area = a.width * a.height;
    return a;
}

static td_status make_objects(td_dataset *ds)
{
    if (ds->n > ANNOTATED_MAX)
        return td_error(TD_ELIMIT,
                        "synthetic images with boxes: %lld requested, at most %d are supported",
                        (long long)ds->n, ANNOTATED_MAX);
    TD_TRY(td_objects_new(ds->n, ds->n * OBJECTS, ds->n_classes, &ds->objects));
    struct td_objects *o = ds->objects;
    o->file = ds->root;
    for (int i = 0; i < ds->n_classes; i++)
        o->categories[i] = i + 1;
    for (int64_t i = 0; i < ds->n; i++) {
        td_rng r = td_rng_make(0, TD_RNG_SYNTH, 1, (uint64_t)i);
        o->images[i] = (td_annotated){ .id = i, .width = PIXELS, .height = PIXELS };
        for (int64_t k = i * OBJECTS; k < (i + 1) * OBJECTS; k++) {
            o->annotations[k] = random_object(&r, k + 1, ds->n_classes);
            o->ground_truths[k] = td_ground_truth_of(&o->annotations[k], PIXELS, PIXELS);
        }
        o->first[i + 1] = (i + 1) * OBJECTS;
    }
    return TD_OK;
}

td_status td_synthetic_open(const td_dataset_opts *opts, td_dataset *ds)
{
    ds->root = "synthetic";
    ds->n = opts->n_images ? opts->n_images : IMAGES;
    int usual = opts->has_boxes ? OBJECT_CLASSES : CLASSES;
    TD_TRY(td_dataset_number_classes(ds, opts->n_classes ? opts->n_classes : usual));
    return opts->has_boxes ? make_objects(ds) : TD_OK;
}
