/*
 * options/rows.h -- rows of options that several jobs have, each for its own struct T
 */
#ifndef TD_OPTIONS_ROWS_H
#define TD_OPTIONS_ROWS_H

#include "options/field.h"

extern const char *const td_tune_names[], *const td_interpolation_names[]; /* train_options.c */

/* clang-format off */
#define TD_DEVICE_ROWS(T) \
    TD_TEXT   (T, device, "cpu", "NAME", \
               "cpu, or ref: the plain C kernels, which know float64 too"), \
    TD_INT    (T, threads, 0, 0, 4096, "compute threads; 0: one per processor"), \
    TD_ENUM   (T, tune, 1, td_tune_names, \
               "kernels and layouts as measured here: not, before, or now"), \
    TD_TEXT   (T, tune_cache, NULL, "FILE", \
               "where that is kept; default: in ~/.cache/tandem")

#define TD_WEIGHTS_ROW(T) \
    TD_TEXT_AS(T, weights, "weights", \
               "w|pretrained-weights|pretrained-from-file|resume", NULL, \
               "FILE", "weight file or checkpoint, ours or PyTorch's")

/* of jobs that name classes; `others`: where names come from without it */
#define TD_CLASSES_ROW(T, others) \
    TD_TEXT   (T, classes, NULL, "FILE", \
               "names of the network's classes, lines or JSON, in place of " others)

/* where TensorFlow's programs log: this one always logs to stderr */
#define TD_LOGGING_ROWS \
    TD_ACCEPTED("alsologtostderr", NULL, "the log goes to stderr"), \
    TD_ACCEPTED("alsologtostder", NULL, "the log goes to stderr")

/* of jobs that look at pictures one by one */
#define TD_PICTURE_ROWS(T) \
    TD_ENUM   (T, interpolation, 0, td_interpolation_names, "of the resize, antialiased"), \
    TD_BOOL   (T, ignore_orientation, false, \
               "leave EXIF-rotated pictures as they are stored")
/* clang-format on */

#endif
