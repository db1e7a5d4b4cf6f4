/*
 * inference/predictor.h -- runs a weight file's network: rows of images in, results out
 *
 *     td_predictor *p;
 *     TD_TRY(td_predictor_open(&opts, &p));
 *     TD_OUT(td_predictor_add_batch(p, 8, 0));     programs are kept, one for each batch size
 *     TD_OUT(td_predictor_add_batch(p, 1, 0));
 *     TD_OUT(td_predictor_finish(p));
 *     TD_OUT(td_predictor_run(p, images, TD_DT_F32, 11, logits, probabilities));
 *                                                  8, then 3 of 1 or padded
 *     td_predictor_free(p);
 *
 * The metadata of the network (names, sizes, the transform) is constant once a program is kept, so
 * any thread may read it.
 *
 * A predictor has one stream or several.  Streams share weights and run at the same time, each in a
 * thread of its own with its own compute threads, a share of those of td_set_threads.  The thread
 * that opens the predictor is that of stream 0; it calls everything but td_predictor_enter, time
 * and each of the others:
 *
 *     td_predictor_finish(p)          thread i:  td_predictor_enter(p, i)
 *     td_predictor_each(p, 0, ...)               td_predictor_each(p, i, ...)
 */
#ifndef TD_INFERENCE_PREDICTOR_H
#define TD_INFERENCE_PREDICTOR_H

#include "inference/box_classes.h"
#include "tandem/amp.h"
#include "tandem/device.h"
#include "tandem/model.h"
#include "transforms/augment.h"

enum {
    TD_PREDICTOR_SIZES = 4, /* most programs kept */
    TD_STREAMS_AUTO = -1
};

typedef struct td_predictor td_predictor;

/** The options of a predictor; it borrows the texts. */
typedef struct {
    td_model_opts model; /* the weight file completes it */
    td_amp_opts amp;
    const char *weights;
    const char *classes; /* file of names (class_names.h); NULL: as the weight file has them */
    bool use_ema;        /* the file's averaged weights */
    td_interpolation interpolation;
    bool stored_orientation;
    td_device_opts device; /* `threads` is ignored: call td_set_threads */
    bool takes_detectors;  /* otherwise their weights are an error */
    bool takes_floats;     /* rows may be f32 also where td_predictor_dtype is u8 */
    int smallest_batch;    /* the smallest that will be added, 0: not known; a large filter that the
                              others would keep in a form of their own has to save much time */
    int streams;           /* 0 or 1: one; TD_STREAMS_AUTO: one for each 8 compute threads */
} td_predictor_opts;

/**
 * Read the weights and open the device; compiles nothing.  Call td_set_threads before; the caller's
 * compute threads are then those of stream 0.
 *   TD_EUSAGE  no weight file named, or weights of a detector; several streams on a GPU or with
 *              OMP_PROC_BIND
 *   and the errors of td_tensors_read, td_device_open and td_amp_resolve
 */
td_status td_predictor_open(const td_predictor_opts *opts, td_predictor **out) TD_CHECKED;
void td_predictor_free(td_predictor *p);

/**
 * Compile for `batch` rows, unless such a program is kept: the largest first, since programs share
 * the memory of earlier ones (td_compile_opts.share).  planned_runs is as in td_compile_opts, and
 * has no effect with several streams.  TD_ELIMIT: TD_PREDICTOR_SIZES programs are kept; TD_EARG:
 * td_predictor_finish was called; and the errors of td_compile and td_weights_load.
 */
td_status td_predictor_add_batch(td_predictor *p, int batch, int64_t planned_runs) TD_CHECKED;

/**
 * Free the weight file's memory and that of parameters that no run reads
 * (td_program_release_params); no more programs can be kept.  Errors of kernels, which run once.
 */
td_status td_predictor_finish(td_predictor *p) TD_CHECKED;

/** The planned memory of all kept programs, in bytes; what they share counts once. */
typedef struct {
    int64_t params;      /* weights, and what was computed from them */
    int64_t activations; /* everything else */
} td_predictor_bytes;

td_predictor_bytes td_predictor_memory(const td_predictor *p);

int td_predictor_streams(const td_predictor *p);
int td_predictor_threads(const td_predictor *p, int stream); /* its compute threads */

/** The calling thread becomes that of the stream, after td_predictor_finish. */
void td_predictor_enter(const td_predictor *p, int stream);

/**
 * Time the kept programs of a stream, so that it can choose between padding a small batch and
 * running smaller ones.  Without these times, small batches are padded.
 */
td_status td_predictor_time(td_predictor *p, int stream) TD_CHECKED;

/**
 * What td_predictor_transform makes: f32 rows [3, S, S], or u8 rows [S, S, 3], which programs on a
 * GPU normalize (td_input_as_bytes).
 */
td_dtype td_predictor_dtype(const td_predictor *p);

/**
 * Run n >= 1 rows of images, td_predictor_dtype or with opts.takes_floats f32, through programs
 * kept by stream 0 into logits [n, K] and probabilities [n, K]; either may be NULL.  TD_EARG: no
 * program is kept; TD_EDEVICE.
 */
td_status td_predictor_run(td_predictor *p, const void *images, td_dtype dtype, int n,
                           float *logits, float *probabilities) TD_CHECKED;

/**
 * Receives the results of rows from .. from + n - 1, valid during the call: for a classifier logits
 * [n, K] and probabilities [n, K], for a detector deltas [n, A, 4] and scores [n, A, K + 1].
 */
typedef td_status td_predictor_take(void *ctx, int from, int n, const float *const results[2]);

/** Run n >= 1 rows on a stream; `take` gets the results of each program's run.  Errors of both. */
td_status td_predictor_each(td_predictor *p, int stream, const void *images, td_dtype dtype, int n,
                            td_predictor_take *take, void *ctx) TD_CHECKED;

/* --- metadata --------------------------------------------------------------------------------- */

/** The number of classes; for a detector, without the background. */
int td_predictor_classes(const td_predictor *p);

/** Are probabilities sigmoids, of classes that do not exclude each other? */
bool td_predictor_is_multi_label(const td_predictor *p);

/** A classifier's name of class i, or "class 17", written to `room`, if it has no name. */
const char *td_predictor_class_name(const td_predictor *p, int i, char room[24]);

/** The name of the architecture or of the graph file. */
const char *td_predictor_name(const td_predictor *p);

/** The kind of detector; TD_DETECTOR_NONE for a classifier. */
td_detector td_predictor_detector(const td_predictor *p);

/** A detector's classes, by label. */
const td_box_classes *td_predictor_box_classes(const td_predictor *p);

/**
 * The transform from an image to a row: td_transform_image, or for a detector td_object_row.  Its
 * as_bytes agrees with td_predictor_dtype.
 */
const td_transform *td_predictor_transform(const td_predictor *p);

/** The resolved precision. */
const td_amp_opts *td_predictor_amp(const td_predictor *p);

#endif
