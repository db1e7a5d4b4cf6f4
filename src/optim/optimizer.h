/*
 * optim/optimizer.h -- the part of a training step after the loss: gradients, their sums over
 * several batches, the optimizer, running statistics and averages of weights
 *
 * Everything consists of nodes and parameters of one graph.  Its parameters, in addition to the
 * model's:
 *
 *     momentum.W                      momentum buffer
 *     square_avg.W                    RMSprop's mean square
 *     exp_avg.W, exp_avg_sq.W         means of the gradient and of its square: Adam, AdamW, LAMB
 *     accumulated.W                   sum of the gradients of the current step
 *     ema.W, ema.S                    averages of weights and of running statistics
 *     pending.S, pending.ema.S        statistics of the current step, which may be discarded
 *
 * With several batches per step all run the same program: the input `update` is 1 on the last, and
 * nodes that must run only then depend on it.  Running statistics are updated with every batch.  So
 * are averages of statistics.  Averages of weights are updated when the weights change, for all
 * batches since (`ema_before` is the product of their factors): the same numbers with two passes
 * over memory instead of one per batch.
 *
 * With loss scaling nothing is written unless the whole step is finite.  With one batch, all
 * updates depend on `finite`.  With several, statistics are updated as `pending`; the last batch
 * either commits them with the weights, or discards them.
 */
#ifndef TD_OPTIM_OPTIMIZER_H
#define TD_OPTIM_OPTIMIZER_H

#include "base/map.h"
#include "tandem/graph.h"
#include "tandem/program.h"
#include "tandem/train_opts.h"

/* Names of decayed weights; number of other trained weights. */
typedef struct {
    td_map decayed; /* td_map_release */
    int n_undecayed;
} td_decay_groups;

/* Weight decay of kinds of weights, where is_given.  A bias is a bias before it is a norm's. */
typedef struct {
    struct {
        bool is_given;
        double decay;
    } norm, bias, embedding;
} td_special_decay;

typedef struct td_step_opts {
    double momentum, decay, smoothing;
    bool
        cycles_momentum; /* the input lr is [2]: the rate and the momentum, or beta1, of the step */
    bool nesterov, decays_norms;
    bool is_scaled; /* gradients of loss_scale * loss, and no update unless all are finite */
    td_optimizer optimizer;
    double alpha, eps;            /* RMSprop; eps of the others, too */
    double beta1, beta2;          /* Adam, AdamW, LAMB */
    td_special_decay special;     /* decay of norms, biases, embeddings; absent: as other weights */
    double clip_norm, clip_value; /* limits of the gradient's norm and of its values; 0: none */
    double lamb_norm;             /* LAMB: limit of the norm, after clip_norm; 0: none */
    td_decay_rule decay_rule;
    bool accumulates;        /* a step has several batches: input `update` */
    bool averages;           /* keep averages of weights and statistics */
    bool mixes;              /* mixup of images and targets */
    bool cuts;               /* cutmix of images, and mixup of targets */
    bool weighs_classes;     /* targets are multiplied by an input, a factor for each class */
    bool weighs_positives;   /* binary cross-entropy has an input, a factor for each class */
    bool is_binary;          /* binary cross-entropy of each class, not softmax's */
    double threshold;        /* with it: targets above are 1, others 0; negative: as they are */
    const td_norm *norm;     /* images are bytes, normalized by this; NULL: floats */
    const char *frozen;      /* patterns of weights that are not trained (freeze.h); NULL: none */
    bool freezes_norms;      /* and their norms' running statistics do not change */
    int ranks;               /* gradients are summed over them; 0: one */
    bool sums_in_order;      /* sums do not depend on the number of ranks: --reproducible */
    td_decay_groups *groups; /* filled, where not NULL */
} td_step_opts;

/**
 * Additional inputs and output of a step with loss scaling: two inputs f32[]; an output f32[], 1 if
 * the loss and all gradients are finite, otherwise 0.
 */
#define TD_INPUT_SCALE   "loss_scale"
#define TD_INPUT_INVERSE "inverse_scale"
#define TD_OUTPUT_FINITE "finite"

/** An output f32[] where the norm of the gradient is limited: the norm before that. */
#define TD_OUTPUT_NORM "grad_norm"

/**
 * Inputs f32[] of the optimizers with bias correction: 1 - beta1^t and 1 - beta2^t, t = 1 in the
 * first step.  Skipped steps do not count.
 */
#define TD_INPUT_REST1 "adam_rest1"
#define TD_INPUT_REST2 "adam_rest2"

/**
 * Additional inputs of other steps, f32[].  With `accumulates`: update, 1 on the last batch of a
 * step, and inverse_scale, 1 / (loss scale * batches * ranks), which exists with several `ranks`,
 * too.  With `averages`: ema_keep, m, and ema_share, 1 - m, of this batch; with both, ema_before,
 * the product of m over the step's previous batches, and ema_rest, 1 - ema_before.  With `mixes`:
 * mixup_lambda f32[N], mixup_partner i64[N].  With `cuts`: mixup_partner, cutmix_box i64[N,4] and
 * the target's coefficient cutmix_share f32[N].  With both, the inputs of the one that was not
 * chosen for a batch change nothing.
 */
#define TD_INPUT_UPDATE           "update"
#define TD_INPUT_EMA_KEEP         "ema_keep"
#define TD_INPUT_EMA_SHARE        "ema_share"
#define TD_INPUT_EMA_BEFORE       "ema_before"
#define TD_INPUT_EMA_REST         "ema_rest"
#define TD_INPUT_LAMBDA           "mixup_lambda"
#define TD_INPUT_CLASS_WEIGHTS    "class_weights"
#define TD_INPUT_POSITIVE_WEIGHTS "positive_weights"
#define TD_INPUT_PARTNER          "mixup_partner"
#define TD_INPUT_BOX              "cutmix_box"
#define TD_INPUT_SHARE            "cutmix_share"

/** Name prefixes of the state that a step keeps for each parameter. */
#define TD_MOMENTUM_PREFIX "momentum."
#define TD_SQUARE_PREFIX   "square_avg."
#define TD_MEAN_PREFIX     "exp_avg."
#define TD_MEAN_SQ_PREFIX  "exp_avg_sq."
#define TD_SUM_PREFIX      "accumulated."
#define TD_EMA_PREFIX      "ema."
#define TD_PENDING_PREFIX  "pending."

/** Does the optimizer read TD_INPUT_REST1 and TD_INPUT_REST2? */
bool td_optimizer_is_adam(td_optimizer o);

/**
 * Is this parameter excluded from weight decay?  The reference's rule: its name contains "bn".  The
 * shortcut's norm ("downsample.1") and all biases of linear layers are therefore decayed.
 */
bool td_is_undecayed(const char *name);

/**
 * Emit everything after `loss`: updates of all weights that are not frozen and, without loss
 * scaling, averages of the statistics.  `lr` is a scalar, or [2] with cycles_momentum.
 */
void td_optimizer_emit(td_builder *b, td_value *loss, td_value *lr, const td_step_opts *o);

/**
 * With loss scaling: rewrite the graph so that running statistics and their averages are updated
 * only if the step is applied.  Caller frees *out.
 */
td_status td_optimizer_guard_statistics(const td_graph *g, const td_step_opts *o,
                                        td_graph **out) TD_CHECKED;

/** Weight decay's part of the loss: half of `decay` times the squares of all decayed weights. */
td_status td_l2_loss(td_program *p, const td_decay_groups *groups, double decay,
                     double *out) TD_CHECKED;

#endif
