/*
 * pth/pth.h -- reads PyTorch's weight files (.pth, .pth.tar, .pt) as named tensors
 *
 * Reads both containers of torch.save: the zip archive (torch 1.6 and later) and the older stream.
 * The object inside is a state_dict, or a dict with one among its entries: a training checkpoint.
 * Nothing is executed (pth/pickle.h).
 *
 *     td_tensors *t;
 *     TD_TRY(td_pth_read("model_best.pth.tar", false, &t));
 *
 * Other values of the checkpoint become metadata of the set:
 *
 *     torch.container   "zip" or "legacy"
 *     torch.section     the entry that was read, "state_dict"; absent for a bare state_dict
 *     torch.epoch       a whole number
 *     torch.best_prec1  the best accuracy, in the trainer's units
 *     torch.arch        the architecture's name in the trainer
 *
 *     tandem.*          metadata on the network written by `tandem convert`: pth/pth_metadata.h
 *
 * td_pth_read_training also reads the optimizer's state of a training checkpoint.
 */
#ifndef TD_PTH_PTH_H
#define TD_PTH_PTH_H

#include <stdbool.h>

#include "io/safetensors.h"

#define TD_PTH_HEAD_BYTES 16

/** Do the first bytes of a file (up to TD_PTH_HEAD_BYTES) look like a PyTorch file? */
bool td_pth_is(const void *head, size_t n_bytes);

/**
 * Read a whole file.  `is_ema`: read the averaged weights, state_dict_ema or model_ema.
 *
 *   TD_ENOTFOUND     no such file
 *   TD_EIO           unreadable, or not a regular file
 *   TD_EFORMAT       malformed or damaged: the message names the file and the position
 *   TD_EUNSUPPORTED  an opcode, a name, a type or a byte order that is not supported
 *   TD_ELIMIT        larger than the limits of pth/pickle.h; or the tensors together have more
 *                    than four times the file's bytes
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_pth_read(const char *path, bool is_ema, td_tensors **out);

/** The same from memory, borrowed for the call; `what` names it in messages. */
TD_CHECKED td_status td_pth_parse(const void *bytes, size_t n_bytes, const char *what, bool is_ema,
                                  td_tensors **out);

/**
 * Read a training checkpoint: besides the tensors of its state_dict
 *
 *     ema.NAME                      tensors of state_dict_ema, if it has one
 *     optimizer.I.momentum_buffer   the optimizer's state for parameter I, if any;
 *     optimizer.I.square_avg        and with Adam, AdamW and LAMB
 *     optimizer.I.exp_avg, .exp_avg_sq
 *
 * and metadata "torch.param_groups", a JSON array of the one or two groups of parameters:
 *
 *     [{"params": [0, 1], "lr": 0.1, "momentum": 0.9, "nesterov": false, ...}, ...]
 *
 * where "betas" are "beta1" and "beta2".  "torch.step" is the count of steps of the parameters, if
 * they have one and all the same.
 *
 * Errors as above; also TD_EFORMAT: no optimizer or no epoch; TD_EUNSUPPORTED: the optimizer has
 * other state, or more than two groups.
 */
TD_CHECKED td_status td_pth_read_training(const char *path, td_tensors **out);
TD_CHECKED td_status td_pth_parse_training(const void *bytes, size_t n_bytes, const char *what,
                                           td_tensors **out);

#endif
