/*
 * tandem/compat.h -- options of the reference programs that stand for options of td_train_opts
 */
#ifndef TD_COMPAT_H
#define TD_COMPAT_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Recipes by name, and options of the reference programs that stand for others of td_train_opts.
 * td_train_preset and td_train_resolve turn them into those; the job itself reads none of them.
 */
typedef struct {
    const char *preset;       /* "resnet50/90", "resnet50/DGXA100/AMP/90"; NULL: none */
    const char *cfg_file;     /* table of recipes, YAML; NULL: the built-in one */
    const char *platform;     /* "DGXA100" */
    const char *mode;         /* "convergence", ..., or one of TensorFlow's main */
    double lr_init;           /* learning rate for 256 images; -1: not given */
    int num_iter, run_iter;   /* epochs or batches, in all and of this run; -1: not given */
    int iter_unit;            /* 0 epoch, 1 batch */
    int warmup_steps;         /* iterations that a benchmark leaves out */
    int benchmark_iterations; /* that a benchmark mode measures; -1: num_iter */
    bool cosine_lr;           /* the same as lr_schedule cosine */
    const char *to_predict;   /* image for mode predict */
    const char *model_dir;    /* the workspace; of evaluation also where the checkpoint is */
    const char *pipeline_config_path;           /* TensorFlow's configuration of a detector */
    const char *hparams_overrides;              /* "name=value,...": other values of its fields */
    const char *named_workspace, *named_report; /* of the command's line and files; NULL: neither */
    char name[300];          /* made by td_train_preset: what was chosen, or "" */
    double rule_lr;          /* made by td_train_preset: by the rule of thumb, or 0 */
    int64_t preset_steps;    /* made by it: of a detector's configuration, or 0 */
    int64_t preset_lr_steps; /* likewise: of its learning rate */
    int preset_warmup;       /* likewise */
    bool keeps_report;       /* made by it: the recipe saves no checkpoints, but reports */
} td_launch_opts;

TD_API const struct td_field *td_launch_fields(void);

#ifdef __cplusplus
}
#endif
#endif
