/*
 * tandem/convert.h -- initialize weights, and convert weight files between formats
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
 * Initialize the weights of a network from a seed and write them to a file. TD_EARG: there is a
 * file `out_path`, without `overwrite`. TD_EUSAGE: its name ends like that of another format.
 */
TD_API TD_CHECKED td_status td_init_weights(const td_model_opts *model, uint64_t seed,
                                            const char *out_path, bool overwrite);

/** The output format of td_convert: by the extension of the output's name, or a given one. */
typedef enum { TD_CONVERT_BY_ENDING, TD_CONVERT_SAFETENSORS, TD_CONVERT_PTH } td_convert_format;

/** Names of the tensors in a .pth. */
typedef enum {
    TD_CONVERT_NAMES_AUTO,        /* REFERENCE for a checkpoint, otherwise TORCHVISION */
    TD_CONVERT_NAMES_TORCHVISION, /* layer1.0.conv1.weight; timm's se.fc1 as [D, C, 1, 1] */
    TD_CONVERT_NAMES_REFERENCE    /* layers.0.0.conv1.weight; squeeze.squeeze as [D, C] */
} td_convert_names;

typedef struct {
    bool ema; /* the averaged weights */
    td_convert_names names;
    td_convert_format format; /* set by the option --to of the command */
    const char *classes;      /* file of class names to store; NULL: those in the input */
    int image_size;           /* to put in, as convert's row --image-size; 0: the one that IN has */
    const char *model_output; /* of an ONNX file, as td_model_opts.output */
    bool overwrite;           /* replace an existing output file; otherwise it is TD_EARG */
    const char *log;
} td_convert_opts;

/** Metadata of a checkpoint; -1 if it has none. */
typedef struct {
    int64_t n_tensors; /* number of tensors written */
    int64_t epoch;
    double best_top1; /* percent */
    double best_map;  /* mean average precision, 0 .. 1; multi-label networks only */
} td_convert_result;

TD_API const struct td_field *td_convert_fields(void);

/**
 * Convert a checkpoint or weight file of Tandem or PyTorch, detected by its contents, to weights:
 * momentum buffers and training state are dropped. Tensors keep their bits; tensors of PyTorch
 * files get Tandem's names. The extension of `out_path` selects the format: .safetensors, or .pth,
 * .pt and .pth.tar for PyTorch. A Tandem checkpoint becomes one that PyTorch's program can resume,
 * with momentum buffers, epoch and averages, unless opts->ema selects the averaged weights only.
 * The description of the network (name, classes, image size, graph) is kept in every format.
 */
TD_API TD_CHECKED td_status td_convert(const char *in_path, const char *out_path,
                                       const td_convert_opts *opts, td_convert_result *result);

#ifdef __cplusplus
}
#endif
#endif
