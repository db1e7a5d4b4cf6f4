/*
 * tandem/convert.h -- fresh weights, and weight files of one kind from those of another
 */
#ifndef TD_CONVERT_H
#define TD_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Fresh weights: arch, num_classes, seed -> file.  TD_EARG: there is a file `out_path`, without
 * `overwrite`.
 */
TD_API TD_CHECKED td_status td_init_weights(const td_model_opts *model, uint64_t seed,
                                            const char *out_path, bool overwrite);

/** What td_convert writes: as the ending of the output's name says, or one of the others. */
typedef enum { TD_CONVERT_BY_ENDING, TD_CONVERT_SAFETENSORS, TD_CONVERT_PTH } td_convert_format;

typedef struct {
    bool ema;   /* the averaged weights */
    int names;  /* of tensors in a .pth: 0 by the file's kind, 1 torchvision's, 2 main.py's */
    int format; /* td_convert_format; no row of its own: convert's --to */
    const char *classes; /* file of the classes' names to put in; NULL: those that IN has */
    int image_size;      /* to put in, as convert's row --image-size; 0: the one that IN has */
    bool overwrite;      /* a file of the output's name is replaced; else it is TD_EARG */
    const char *log;
} td_convert_opts;

/** What a checkpoint says of itself; -1 where it does not. */
typedef struct {
    int64_t n_tensors; /* that were written */
    int64_t epoch;
    double best_top1; /* percent */
} td_convert_result;

TD_API const struct td_field *td_convert_fields(void);

/**
 * Checkpoint or weight file, of ours or of PyTorch's, as its content says -> weights: momentum and
 * the state of training are left out.  Tensors keep their bits; those of PyTorch's files get the
 * names that we write.  The ending of `out_path` chooses its format: .safetensors, or .pth, .pt and
 * .pth.tar for PyTorch's.  A checkpoint of ours becomes one that PyTorch's program resumes, with
 * momentum buffers, epoch and averages, unless opts->ema asks for weights alone.  What a file says
 * about its network (name, classes, image size, own graph) is in the result, whatever its format.
 */
TD_API TD_CHECKED td_status td_convert(const char *in_path, const char *out_path,
                                       const td_convert_opts *opts, td_convert_result *result);

#ifdef __cplusplus
}
#endif
#endif
