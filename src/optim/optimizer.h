/*
 * optim/optimizer.h -- the part of a training step behind the loss: gradients, their sums over
 * several batches, the optimiser, running statistics and averages of weights
 *
 * Everything is nodes and parameters of the one graph.  Beside the model's own parameters:
 *
 *     momentum.W                      velocity
 *     square_avg.W                    RMSprop's mean square
 *     accumulated.W                   sum of the gradients of a step under way
 *     ema.W, ema.S                    averages of weights and of running statistics
 *     pending.S, pending.ema.S        statistics of a step under way that may yet be dropped
 *
 * With several batches to a step the program is the same for each of them: the input `update` is 1
 * on the last, and what is to happen only then obeys it.  Running statistics move with every batch.
 * Averages of statistics do too; those of weights are brought up to date when the weights change,
 * for all batches since (`ema_before` is the product of their factors): the same numbers with two
 * passes over memory instead of one a batch.
 *
 * With loss scaling nothing at all is written unless the whole step is finite.  Of one batch, all
 * updates obey `finite`.  Of several, statistics move as `pending`; the last batch either takes
 * them over with the weights, or throws them away.
 */
#ifndef TD_OPTIM_OPTIMIZER_H
#define TD_OPTIM_OPTIMIZER_H

#include "ir/build.h"
#include "optim/training_graph.h"
#include "tandem/program.h"

/**
 * Emit everything behind `loss`: updates of all weights that are not frozen and, but with loss
 * scaling, averages of the statistics.  `lr` is a scalar.
 */
void td_add_updates(td_builder *b, td_value *loss, td_value *lr, const td_sgd_opts *o);

/**
 * With loss scaling: the graph again, in which running statistics and their averages obey whether
 * the step counts.  Caller frees *out.
 */
td_status td_guard_statistics(const td_graph *g, const td_sgd_opts *o, td_graph **out) TD_CHECKED;

/** Weight decay's part of the loss: half of `decay` times the squares of all decayed weights. */
td_status td_l2_loss(td_program *p, const td_decay_groups *groups, double decay,
                     double *out) TD_CHECKED;

#endif
