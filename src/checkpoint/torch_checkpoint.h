/*
 * checkpoint/torch_checkpoint.h -- PyTorch's training checkpoints as ours, and ours as PyTorch's
 *
 * The reference program's main.py saves {epoch, best_prec1, state_dict, optimizer, state_dict_ema}.
 * Its optimizer numbers the parameters: first those with "bn" in their names, then the others, each
 * in the order of the state_dict; or, where there is one group, all in that order.
 *
 *     state_dict        weights and statistics           <->  W
 *     state_dict_ema                                     <->  ema.W
 *     optimizer.state   momentum_buffer, square_avg      <->  momentum.W, square_avg.W
 *     epoch, best_prec1                                  <->  tandem.state
 *     param_groups      optimizer, momentum, weight decay <-> tandem.config, of that alone
 *
 * What main.py does not save, the network's name, the seed and the other options, is not invented:
 * it comes from the command line.
 */
#ifndef TD_CHECKPOINT_TORCH_CHECKPOINT_H
#define TD_CHECKPOINT_TORCH_CHECKPOINT_H

#include "io/safetensors.h"
#include "tandem/train.h"

/**
 * Read a checkpoint to resume, ours or PyTorch's as the content says.  Tensors have our names, as
 * td_weights_load wants them with with_momentum; state that PyTorch had not begun is zero.
 *
 *   TD_EFORMAT       malformed; or the optimizer's numbers, shapes or groups do not fit the weights
 *   TD_EUNSUPPORTED  an optimizer that is neither SGD nor RMSprop, or with settings there are not
 *                    here: dampening, maximize, centered, two weight decays
 *   and the errors of td_weight_file_open
 */
td_status td_checkpoint_open(const char *path, td_tensors **out) TD_CHECKED;

/** Was it PyTorch's?  Then it has no seed, and no options but those of the optimizer. */
bool td_checkpoint_is_torch(const td_tensors *t);

/** A line in the log: what was taken from a checkpoint of PyTorch's, and what was not. */
void td_torch_checkpoint_log(const td_tensors *t, const char *path, const td_train_opts *o);

/** Whose names tensors have in a file for PyTorch. */
enum {
    TD_NAMES_AUTO,        /* REFERENCE for a checkpoint, else TORCHVISION */
    TD_NAMES_TORCHVISION, /* layer1.0.conv1.weight; timm's se.fc1 as [D, C, 1, 1] */
    TD_NAMES_REFERENCE    /* layers.0.0.conv1.weight; squeeze.squeeze as [D, C] */
};

/**
 * Write a set of ours, weights or a checkpoint of a classifier, as a file of PyTorch's: a
 * state_dict, or what main.py saves and resumes.  Atomic; the same set gives the same bytes.
 *
 *   TD_EUNSUPPORTED  a checkpoint of a detector
 *   and the errors of td_pth_save
 */
td_status td_torch_write(const td_tensors *t, const char *what, int names,
                         const char *path) TD_CHECKED;

#endif
