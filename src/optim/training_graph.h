/*
 * optim/training_graph.h -- the two graphs of a job: one that trains, one that judges
 *
 *     training:  images, labels, lr -> loss, logits; every weight and statistic updated in place
 *                with loss scaling: also loss_scale, inverse_scale -> finite; updated if it is 1
 *     judging:   images, labels -> losses [N], logits [N, K]
 *
 * Of detectors: images, labels, targets, lr -> loss; td_model_graph is the one that judges.
 */
#ifndef TD_OPTIM_TRAINING_GRAPH_H
#define TD_OPTIM_TRAINING_GRAPH_H

#include "base/map.h"
#include "tandem/program.h"
#include "tandem/train.h"

typedef enum { TD_OPTIMIZER_SGD, TD_OPTIMIZER_RMSPROP } td_optimizer;

/* Which weights are decayed: by name, as the reference's code does, or no norm's, as it says; or,
   of detectors, those of more than one dimension. */
typedef enum { TD_DECAY_CODE, TD_DECAY_README, TD_DECAY_KERNELS } td_decay_rule;

/* Names of decayed weights; how many others there are. */
typedef struct {
    td_map decayed; /* td_map_release */
    int n_undecayed;
} td_decay_groups;

typedef struct td_sgd_opts {
    double momentum, decay, smoothing;
    bool nesterov, decays_norms;
    bool is_scaled; /* gradients of loss_scale * loss, and no update unless all are finite */
    td_optimizer optimizer;
    double alpha, eps; /* RMSprop */
    td_decay_rule decay_rule;
    bool accumulates;        /* a step is several batches: input `update` */
    bool averages;           /* averages of weights and statistics */
    bool mixes;              /* mixup of pictures and targets */
    const char *frozen;      /* patterns of weights that are not trained (freeze.h); NULL: none */
    bool freezes_norms;      /* and their norms keep their statistics */
    int ranks;               /* that train together: gradients are summed over them; 0: one */
    bool sums_in_order;      /* batch by batch, whatever rank has which: --reproducible */
    td_decay_groups *groups; /* filled, where not NULL */
} td_sgd_opts;

/** What a step with loss scaling has in addition: two inputs f32[], an output f32[], 1 or 0. */
#define TD_INPUT_SCALE   "loss_scale"
#define TD_INPUT_INVERSE "inverse_scale"
#define TD_OUTPUT_FINITE "finite"

/**
 * What other steps have, f32[]: `accumulates`: update, 1 on the last batch of a step, and
 * inverse_scale, 1 / (loss scale * batches * ranks), which `ranks` have, too.  `averages`: ema_keep
 * m and ema_share 1 - m of this batch; with both, ema_before the product of m over the step's
 * batches before, ema_rest 1 - that.  `mixes`: mixup_lambda f32[N], mixup_partner i64[N].
 */
#define TD_INPUT_UPDATE     "update"
#define TD_INPUT_EMA_KEEP   "ema_keep"
#define TD_INPUT_EMA_SHARE  "ema_share"
#define TD_INPUT_EMA_BEFORE "ema_before"
#define TD_INPUT_EMA_REST   "ema_rest"
#define TD_INPUT_LAMBDA     "mixup_lambda"
#define TD_INPUT_PARTNER    "mixup_partner"

/** Prefixes of what a step keeps for each parameter, before its name (optimizer.h). */
#define TD_MOMENTUM_PREFIX "momentum."
#define TD_SQUARE_PREFIX   "square_avg."
#define TD_SUM_PREFIX      "accumulated."
#define TD_EMA_PREFIX      "ema."
#define TD_PENDING_PREFIX  "pending."

/**
 * Is this parameter left out of weight decay?  The reference's rule: its name contains "bn"; so the
 * shortcut's norm ("downsample.1") and all biases of linear layers are decayed.
 */
bool td_is_undecayed(const char *name);

/**
 * A classifier's; for a detector td_detector_training_graph is called.
 *
 * Inputs images f32[N,3,S,S], labels i64[N], lr f32[]; outputs loss, logits.  Caller frees *out.
 *
 * With sgd->is_scaled also inputs loss_scale and inverse_scale f32[] and an output finite f32[]: 1
 * where the loss (itself never scaled) and all gradients of loss_scale * loss are finite; else 0,
 * and that run wrote no weight, no velocity and no running statistic.
 */
td_status td_training_graph(const td_model_opts *model, int batch, const td_sgd_opts *sgd,
                            td_graph **out) TD_CHECKED;

/**
 * The same of a detector (td_model_detector).  Inputs images, lr as above, labels i64[N, A]: the
 * class of each anchor's object, 0 where it has none, and targets f32[N, A, 4]: the codes wanted
 * there (boxes/targets.h).  Outputs loss, without weight decay, and its parts loss_class and
 * loss_box.  sgd->decay is that of filters only, sgd->smoothing and sgd->mixes do not matter.
 */
td_status td_detector_training_graph(const td_model_opts *model, int batch, const td_sgd_opts *sgd,
                                     td_graph **out) TD_CHECKED;

/**
 * Inputs images, labels; outputs losses [N], logits [N, K].  Without labels: logits, probabilities;
 * of a detector, with labels or without, codes and scores.
 */
td_status td_judging_graph(const td_model_opts *model, int batch, double smoothing, bool has_labels,
                           td_graph **out) TD_CHECKED;

/** opts->image_size, or the architecture's own. */
td_status td_model_image_size(const td_model_opts *opts, int *out) TD_CHECKED;

#endif
