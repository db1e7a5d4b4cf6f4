/*
 * measure.h -- compares tensors with those of a golden case, within its tolerances
 *
 * A case stores of each tensor its L2 norm, sum, largest absolute value and eight elements.  The
 * error of a tensor is the worst of four figures:
 *
 *     |a - b| / largest         eight elements, and the largest itself
 *     |norm - norm| / norm
 *     |sum - sum| / (norm sqrt n)
 *
 * L2 over all tensors as one vector is estimated from the elements, each of which stands for n /
 * 8, and is never below the relative difference of the whole norms.
 *
 *     td_measure m;
 *     td_measure_group(&m, c, "grads", "parameters", fetch, n);
 *     td_findings r = { 0 };
 *     td_findings_add(&r, "grad", m.worst, 1e-3, m.worst_name);
 *     td_findings_end(&r, "resnet18 ...");                              fails the test when needed
 */
#ifndef TD_TEST_MEASURE_H
#define TD_TEST_MEASURE_H

#include "base/text.h"
#include "support/network.h"

/** Not compared: the figure is shown only. */
#define TD_NO_LIMIT 0.0

typedef struct {
    double worst, median, l2;
    char worst_name[96];
} td_measure;

/** The tensor of this name as float64, td_free'd by the caller. */
typedef double *td_fetch(void *ctx, const char *name, int64_t *count);

/** Of the td_test_network `ctx`: a parameter; the momentum buffer of a parameter. */
double *td_fetch_param(void *ctx, const char *name, int64_t *count);
double *td_fetch_momentum_buffer(void *ctx, const char *name, int64_t *count);

/**
 * Tensors "float64.<key>.summary" and ".samples" of the case, whose rows have the names listed by
 * member `list` of the case file.
 */
void td_measure_group(td_measure *m, const td_test_network_case *c, const char *key,
                      const char *list, td_fetch *fetch, void *ctx);

/** max |a - b| / max |b| against a whole stored tensor. */
double td_measure_whole(const td_test_network_case *c, const char *key, const double *found,
                        int64_t count);

/** One line for a case: each figure beside its limit. */
typedef struct {
    td_text line;
    int n_over, n_compared;
} td_findings;

/** `where` (or NULL) names the tensor that a figure over its limit belongs to. */
void td_findings_add(td_findings *r, const char *what, double found, double limit,
                     const char *where);

/** Print the line after `title`; a figure over its limit, or no limit at all, fails the test. */
void td_findings_end(td_findings *r, const char *title);

#endif
