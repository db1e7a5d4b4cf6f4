/*
 * checkpoint/torch_checkpoint.h -- converts training checkpoints from and to PyTorch's format
 *
 * The reference program's main.py saves {epoch, best_prec1, state_dict, optimizer, state_dict_ema}.
 * Its optimizer numbers the parameters: first those with "bn" in their names, then the others, each
 * in the order of the state_dict; with a single group, all in that order.
 *
 *     state_dict        weights and statistics           <->  W
 *     state_dict_ema                                     <->  ema.W
 *     optimizer.state   momentum_buffer, square_avg      <->  momentum.W, square_avg.W
 *                       exp_avg, exp_avg_sq              <->  exp_avg.W, exp_avg_sq.W
 *     epoch, best_prec1, step                            <->  tandem.state
 *     param_groups      optimizer, momentum, weight decay <-> tandem.config, only these options
 *
 * SGD, RMSprop, Adam and AdamW are torch.optim's, LAMB is timm's or apex's.
 *
 * main.py does not save the network's name, the seed and the other options: the command line gives
 * them.
 */
#ifndef TD_CHECKPOINT_TORCH_CHECKPOINT_H
#define TD_CHECKPOINT_TORCH_CHECKPOINT_H

#include "io/safetensors.h"
#include "tandem/convert.h"
#include "tandem/train.h"

/**
 * Read a checkpoint to resume, ours or PyTorch's, by its content.  Tensors have our names, as
 * td_weights_load expects with with_momentum; state that PyTorch had not yet created is zero.
 *
 *   TD_EFORMAT       malformed, or the optimizer's numbers, shapes or groups do not match the
 *                    weights
 *   TD_EUNSUPPORTED  another optimizer, or one with unsupported settings: dampening, maximize,
 *                    centered, amsgrad, two weight decays, ...; an Adam with weight decay that does
 *                    not say whether it is AdamW, as those before PyTorch 2.7
 *   and the errors of td_weight_file_open
 */
td_status td_checkpoint_open(const char *path, td_tensors **out) TD_CHECKED;

/** Was it read from a PyTorch file?  Such a file has no seed, and only the optimizer's options. */
bool td_checkpoint_is_torch(const td_tensors *t);

/** Log which parts of a PyTorch checkpoint were read and which were not. */
void td_torch_checkpoint_log(const td_tensors *t, const char *path, const td_train_opts *o);

/**
 * Write our weights as a PyTorch state_dict, or a classifier's checkpoint as main.py's.  Atomic;
 * the same set gives the same bytes.
 *
 *   TD_EUNSUPPORTED  a checkpoint of a detector
 *   and the errors of td_pth_save
 */
td_status td_torch_write(const td_tensors *t, const char *what, td_convert_names names,
                         const char *path) TD_CHECKED;

#endif
