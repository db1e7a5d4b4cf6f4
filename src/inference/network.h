/*
 * inference/network.h -- the parts of a loaded network (tandem/inference.h) that jobs use
 *
 * A job with a loader of its own makes rows by td_network_transform and runs them with
 * td_network_rows; td_predictions_fill_classes turns probabilities into a prediction.
 */
#ifndef TD_INFERENCE_NETWORK_H
#define TD_INFERENCE_NETWORK_H

#include "inference/predictor.h"
#include "tandem/inference.h"

enum { TD_NETWORK_TOPK = 10 };

/** As td_network_open, for a classifier whose rows are td_network_dtype.  TD_EUSAGE: a detector. */
td_status td_network_open_classifier(const td_network_opts *opts, td_network **out) TD_CHECKED;

/** How rows are made; as_bytes: they are td_network_dtype u8. */
const td_transform *td_network_transform(const td_network *net);
td_dtype td_network_dtype(const td_network *net);

/** The predictor; only its metadata may be read. */
const td_predictor *td_network_predictor(const td_network *net);

/** td_predictor_each on the network's compute thread, which calls `take`; the caller waits. */
td_status td_network_rows(td_network *net, const void *rows, td_dtype dtype, int n,
                          td_predictor_take *take, void *ctx) TD_CHECKED;

/**
 * The k best classes by probabilities [K], of a multi-label network only those of at least
 * `threshold` (0: 0.5), into `p`, or an error in p->st and p->message (this
 * thread's) if one is not finite.  Names of classes without one are written to `room`.
 */
void td_network_classes(const td_predictor *from, const float *probabilities, int k,
                        double threshold, td_prediction *p, char room[TD_NETWORK_TOPK][24]);

#endif
