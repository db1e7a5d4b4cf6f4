/*
 * pth/pth_write.h -- writes dicts, lists, numbers, texts and tensors as a PyTorch file
 *
 * The zip container of torch 1.6 and later with a pickle of protocol 2, which
 * torch.load(weights_only=True) accepts.  The same object gives the same bytes.
 *
 *     td_pth_writer w = { 0 };
 *     td_pth_dict(&w);                              {
 *     td_pth_text(&w, "epoch");                         "epoch":
 *     td_pth_int(&w, 12);                               12,
 *     td_pth_text(&w, "state_dict");                    "state_dict":
 *     td_pth_ordered_dict(&w);                          OrderedDict {
 *     td_pth_text(&w, x->name);
 *     td_pth_tensor(&w, x);                                 "fc.bias": tensor
 *     td_pth_end_dict(&w);                              }
 *     td_pth_end_dict(&w);                          }
 *     st = td_pth_save(&w, "checkpoint.pth.tar");
 *     td_pth_writer_release(&w);
 *
 * A failure is recorded, later calls do nothing, and td_pth_save returns it.  The caller must close
 * every dict and list.
 */
#ifndef TD_PTH_PTH_WRITE_H
#define TD_PTH_PTH_WRITE_H

#include "base/text.h"
#include "io/safetensors.h"

/** Zero-initialise for an empty writer. */
typedef struct {
    td_text pickle;
    td_tensor *storages; /* [n]; their data is borrowed */
    size_t n, cap;
    td_status st;
} td_pth_writer;

/** Begin and end dicts and lists; calls in between add items.  In a dict, keys and values
    alternate. */
void td_pth_dict(td_pth_writer *w);
void td_pth_ordered_dict(td_pth_writer *w);
void td_pth_end_dict(td_pth_writer *w);
/** Set the attributes of an ordered dict: write it, then the dict with its attributes, then call
    this. */
void td_pth_attributes(td_pth_writer *w);
void td_pth_list(td_pth_writer *w);
void td_pth_end_list(td_pth_writer *w);

void td_pth_text(td_pth_writer *w, const char *text);
void td_pth_int(td_pth_writer *w, int64_t value);
void td_pth_real(td_pth_writer *w, double value);
void td_pth_bool(td_pth_writer *w, bool value);
void td_pth_none(td_pth_writer *w);

/** A contiguous tensor with its own storage.  Its data is borrowed until the save. */
void td_pth_tensor(td_pth_writer *w, const td_tensor *x);

/**
 * Write the object atomically (io/atomic.h).  Storages begin at multiples of 64 bytes.
 *
 *   TD_EIO     could not be written
 *   TD_ELIMIT  4 GB or more, or more than 65,000 tensors: zip64 is not supported
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_pth_save(const td_pth_writer *w, const char *path);

void td_pth_writer_release(td_pth_writer *w);

#endif
