/*
 * detector.h -- golden cases of the detectors: names, the fill, the graph with everything seen
 *
 *     td_detector_case c;
 *     td_detector_open(&c, "ssd320", is_calm);
 *     td_graph *g = td_detector_observed(&c, is_training);      outputs under the golden names
 *     ...
 *     td_detector_fill_all(&c, p);
 *     float *images = td_detector_images(&c, "images");
 *     double e = td_detector_error(summary, values, count);
 *     td_detector_close(&c);
 *
 * Golden SSD320 is TensorFlow's: names, filters [R, S, C, K], activations [N, H, W, C].  SSD300 is
 * PyTorch's.  What goes wrong on the way fails the running test.
 */
#ifndef TD_TEST_DETECTOR_H
#define TD_TEST_DETECTOR_H

#include "base/json.h"
#include "base/map.h"
#include "io/safetensors.h"
#include "tandem/model.h"
#include "tandem/program.h"

typedef struct {
    const char *part; /* "ssd320": folder and architecture */
    bool is_calm, is_tf;
    int batch, side;
    td_model_opts model;
    td_json *variables;
    td_map by_name; /* golden name -> its row of `variables` */
} td_detector_case;

void td_detector_open(td_detector_case *c, const char *part, bool is_calm);
void td_detector_close(td_detector_case *c);

/** "NAME_calm.ENDING" or "NAME.ENDING", valid until the next call. */
const char *td_detector_file(const td_detector_case *c, const char *name, const char *ending);

/** The golden name of a parameter of ours; `to` has room for 160. */
const char *td_detector_name(const td_detector_case *c, const char *name, char *to);

/** A parameter by the fill, in our order; td_free it. */
float *td_detector_fill(const td_detector_case *c, const char *name, const td_type *t);

/** Every weight and statistic of a program. */
void td_detector_fill_all(const td_detector_case *c, td_program *p);

/** Images [batch, 3, side, side], preprocessed; td_free them. */
float *td_detector_images(const td_detector_case *c, const char *name);

/** The forward graph, with all that the golden files summarise as outputs. */
td_graph *td_detector_observed(const td_detector_case *c, bool is_training);

/** Values of type t in our order, in the golden one (a tensor of rank 4, or heads); td_free it. */
double *td_detector_ordered(const td_detector_case *c, const td_type *t, const float *values);

/**
 * The larger of the relative difference of the l2 norm and, at eight elements, the difference over
 * their largest magnitude, or the root mean square of the tensor where that is more.
 */
double td_detector_error(const td_json *summary, const double *values, int64_t n);

/** Relative difference of the l2 norm alone. */
double td_detector_norm_error(const td_json *summary, const double *values, int64_t n);

#endif
