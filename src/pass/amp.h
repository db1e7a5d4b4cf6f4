/*
 * pass/amp.h -- mixed precision: shared by the two passes and `inspect amp`
 */
#ifndef TD_PASS_AMP_H
#define TD_PASS_AMP_H

#include "amp/amp_opts.h"
#include "amp/amp_propagate.h"
#include "ir/rewrite.h"
#include "tandem/amp.h"

/** How levels autocast and O1 to O3 treat an op's operands: "half", "fp32" or "follows". */
const char *td_autocast_rule(const td_amp_opts *o, const td_op *op);

/** A node of the analysed graph. */
typedef struct {
    const td_node *node;
    td_amp class;
    char colour;          /* colour of its T vertex (td_amp_propagate_result); ' ': none */
    bool is_half;         /* is T half after the rewrite? */
    bool is_gradient_sum; /* gradients of a weight used several times: always float32 */
    td_amp_step step;     /* the step that decided its type */
    const td_node *cause; /* the node that caused it, or NULL */
    int casts_to_half, casts_to_wide; /* casts of its results */
} td_amp_row;

/** The type propagation of a whole graph, for reports. */
typedef struct {
    td_amp_row *rows; /* [n_rows]: the nodes in order */
    int n_rows;
    int n_converted, n_casts, n_casts_to_half; /* n_casts_to_half: counted as TensorFlow does */
    char message[256];                         /* the statistics line, or why nothing was changed */
    bool is_failed;
} td_amp_explanation;

/**
 * Propagate types through `g` (after decompose and grad) and report the decisions.  The nodes are
 * borrowed from `g`; the caller releases *out.
 */
td_status td_amp_explain(const td_graph *g, const td_amp_opts *opts,
                         td_amp_explanation *out) TD_CHECKED;
/**
 * Write the graph before and after the rewrite, and the lists used, into opts->log_path, as
 * amp-ID-before.td, -after.td and -lists.txt (ID: a hash of the graph).  Does nothing if log_path
 * is NULL.
 */
td_status td_amp_write_log(const td_graph *before, const td_graph *after,
                           const td_amp_opts *opts) TD_CHECKED;

void td_amp_explanation_release(td_amp_explanation *e);

#endif
