/*
 * data/dataset.h -- the struct of a data set, and operations on any kind
 *
 * A kind of data set (source.h) fills a td_dataset when it is opened.  Kinds that read image files
 * (folders, annotated folders, packs) fill `samples`; the loader's workers turn those into rows.
 * Kinds that hold ready rows (tensors, synthetic) need no work.
 */
#ifndef TD_DATA_DATASET_H
#define TD_DATA_DATASET_H

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"
#include "io/pack.h"
#include "io/safetensors.h"
#include "tandem/dataset.h"
#include "transforms/augment.h"

typedef struct {
    const char *path; /* in the data set's arena */
    int64_t label;    /* -1: unknown, or: */
    int *labels;      /* multi-label: [n_labels] classes; in the data set's arena */
    int n_labels;
    const struct td_member *member; /* its place in a larger file (members.h); NULL: its own file */
} td_sample;

enum { TD_OTHERS_LISTED = 20 };

struct td_dataset {
    td_data_backend backend;
    const char *root;
    int64_t n;
    int n_classes;
    const char **class_names; /* [n_classes]; NULL: "0", "1", ... are made on demand */
    bool has_class_names;     /* they come from the data, and labels follow them */
    td_arena arena;           /* names and paths */

    td_sample *samples; /* folder: [n] */
    int64_t n_others;   /* folder: number of files that are no samples; the first of them: */
    const char *others[TD_OTHERS_LISTED];
    bool is_multi_label; /* an image has any number of classes */
    bool is_list;        /* list, shards, records: labels and places are independent */
    bool is_unsplit; /* list, shards, records: they are not divided into splits, all was taken */
    td_pack *pack;   /* holds the images, unless they are separate files */
    uint64_t pack_first; /* sample i is image pack_first + i, or pack_first + places[i] */
    int64_t *places;     /* [n]; NULL: no image is skipped */

    td_tensors *file;      /* tensors: owns the two below */
    const float *images;   /* [n, channels, height, width] */
    const int64_t *labels; /* [n] */
    const float *targets;  /* multi-label: [n, n_classes], 1 for a class that the image has, or 0 */
    int channels, height, width;

    struct td_objects *objects; /* objects.h; NULL: a data set with classes */
};

/**
 * Read the bytes of a sample's image, valid until the next call with this `w`: from its file, as
 * td_transform_read, or from the pack, as td_pack_read.
 */
TD_CHECKED td_status td_sample_read(const td_dataset *ds, int64_t sample, td_transformer *w,
                                    const void **bytes, size_t *n_bytes);

/**
 * The part of a sample's path below the data set's root, or below the folder of a list; "" without
 * a path.
 */
const char *td_sample_name(const td_dataset *ds, int64_t sample);

/**
 * Ask the system to prefetch a sample's image.  A hint: cannot fail, and ignores a sample past the
 * last one.
 */
void td_sample_read_ahead(const td_dataset *ds, int64_t sample);

enum { TD_SAMPLES_AHEAD = 16 }; /* samples to prefetch when reading in order */

/** Does this data set hold files to decode (and not ready rows)? */
static inline bool td_dataset_decodes(const td_dataset *ds)
{
    return ds->samples != NULL;
}

/** Convert a class name to UTF-8, as weight files store it in JSON: invalid bytes are replaced. */
TD_CHECKED td_status td_class_name_in_json(const char *name, td_text *out);

/**
 * Map class i of a data set of images to class new_label[i] of n (0 .. n - 1, checked by the
 * caller; any, if no image has it), with the class names `names` from now on; several may map to
 * one.  Copies the names.
 */
TD_CHECKED td_status td_dataset_relabel(td_dataset *ds, int n, const char *const *names,
                                        const int64_t *new_label);

/** The classes of a sample of a multi-label data set: `row` [n_classes] gets 1 for each, else 0. */
void td_sample_targets(const td_dataset *ds, int64_t sample, float *row);

/** Names "0", "1", ... for a data set without any. */
TD_CHECKED td_status td_dataset_number_classes(td_dataset *ds, int n_classes);

#endif
