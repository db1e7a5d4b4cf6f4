/*
 * data/tf_example.h -- what a tf.train.Example says about an image
 *
 *     features { feature { key: "image/encoded"      value { bytes_list { value } } }
 *                feature { key: "image/class/label"  value { int64_list { value } } } ... }
 *
 * Features are a map, so they come in any order.  The image is not read: only its place is found.
 * Source: TensorFlow, core/example/example.proto and feature.proto.
 */
#ifndef TD_DATA_TF_EXAMPLE_H
#define TD_DATA_TF_EXAMPLE_H

#include "base/text.h"
#include "io/tfrecord.h"

typedef enum {
    TD_TF_IMAGE,     /* image/encoded */
    TD_TF_LABEL,     /* image/class/label */
    TD_TF_TEXT,      /* image/class/text */
    TD_TF_FILENAME,  /* image/filename */
    TD_TF_SOURCE_ID, /* image/source_id */
    TD_TF_HEIGHT,    /* image/height, in pixels */
    TD_TF_WIDTH,
    TD_TF_XMIN, /* image/object/bbox/xmin, fractions of the image */
    TD_TF_YMIN,
    TD_TF_XMAX,
    TD_TF_YMAX,
    TD_TF_CLASS_LABEL, /* image/object/class/label */
    TD_TF_CLASS_TEXT,
    TD_TF_IS_CROWD, /* image/object/is_crowd */
    TD_TF_AREA,     /* image/object/area, in pixels */
    TD_TF_FEATURES
} td_tf_feature;

/** The values of a feature; which of the lists is used depends on the feature. */
typedef struct {
    bool is_there; /* the record has the feature, perhaps without values */
    size_t n;
    int64_t *ints;
    float *reals;
    td_text texts; /* each followed by a zero byte */
    size_t cap_ints, cap_reals;
} td_tf_list;

/** Zero-initialise; it can be used for several records. */
typedef struct {
    int64_t image_at, image_bytes; /* bytes of the file; image_at 0: no image */
    td_tf_list lists[TD_TF_FEATURES];
    char *buffer;
    size_t cap_buffer;
} td_tf_example;

/** The name of a feature: "image/encoded". */
const char *td_tf_feature_name(td_tf_feature f);

/**
 * Read the features of a record.  TD_EFORMAT no tf.train.Example, a feature that occurs twice or
 * has values of another type, two images; TD_ELIMIT a feature of more than 4 MiB besides the image;
 * each with file and byte.  TD_EIO, TD_ENOMEM.
 */
TD_CHECKED td_status td_tf_example_read(td_tfrecords *t, const td_tfrecord *r, td_tf_example *x);

/** Text i of a feature, i < n. */
const char *td_tf_list_text(const td_tf_list *l, size_t i);

void td_tf_example_release(td_tf_example *x);

#endif
