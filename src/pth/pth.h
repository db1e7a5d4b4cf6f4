/*
 * pth/pth.h -- PyTorch's weight files (.pth, .pth.tar, .pt) as named tensors
 *
 * Both containers of torch.save: the zip archive (torch 1.6 and later) and the older stream.  The
 * object inside is a state_dict, or a dict that has one among its entries: a training checkpoint.
 * Nothing is executed (pth/pickle.h).
 *
 *     td_tensors *t;
 *     TD_TRY(td_pth_read("model_best.pth.tar", false, &t));
 *
 * What else the checkpoint says is metadata of the set:
 *
 *     torch.container   "zip" or "legacy"
 *     torch.section     the entry that was taken, "state_dict"; absent for a bare state_dict
 *     torch.epoch       a whole number
 *     torch.best_prec1  the best accuracy, as the trainer counted it
 *     torch.arch        the architecture's name in the trainer's words
 *
 *     tandem.*          what `tandem convert` wrote about the network: pth/pth_metadata.h
 *
 * A training checkpoint can be read with all that its optimizer keeps: td_pth_read_training.
 */
#ifndef TD_PTH_PTH_H
#define TD_PTH_PTH_H

#include <stdbool.h>

#include "io/safetensors.h"

#define TD_PTH_HEAD_BYTES 16

/** Do the first bytes of a file, up to TD_PTH_HEAD_BYTES of them, look like PyTorch's? */
bool td_pth_is(const void *head, size_t n_bytes);

/**
 * Read a whole file.  With `is_ema` the averaged weights: state_dict_ema, model_ema.
 *
 *   TD_ENOTFOUND     no such file
 *   TD_EIO           unreadable, or no regular file
 *   TD_EFORMAT       malformed or damaged: the message names the file and the place
 *   TD_EUNSUPPORTED  an opcode, a name, a type or a byte order that is not read
 *   TD_ELIMIT        larger than what is read: see pth/pickle.h; or the tensors together have more
 *                    than four times the file's bytes
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_pth_read(const char *path, bool is_ema, td_tensors **out);

/** The same from memory, which is borrowed for the call; `what` names it in messages. */
TD_CHECKED td_status td_pth_parse(const void *bytes, size_t n_bytes, const char *what, bool is_ema,
                                  td_tensors **out);

/**
 * A training checkpoint: beside the tensors of its state_dict
 *
 *     ema.NAME                      those of state_dict_ema, if it has one
 *     optimizer.I.momentum_buffer   what the optimizer keeps of its parameter number I,
 *     optimizer.I.square_avg        where it keeps it; steps are left out
 *
 * and metadata "torch.param_groups", a JSON array of the one or two groups of parameters:
 *
 *     [{"params": [0, 1], "lr": 0.1, "momentum": 0.9, "nesterov": false, ...}, ...]
 *
 * Errors as above; also TD_EFORMAT: there is no optimizer or no epoch; TD_EUNSUPPORTED: the
 * optimizer keeps something else, or has more than two groups.
 */
TD_CHECKED td_status td_pth_read_training(const char *path, td_tensors **out);
TD_CHECKED td_status td_pth_parse_training(const void *bytes, size_t n_bytes, const char *what,
                                           td_tensors **out);

#endif
