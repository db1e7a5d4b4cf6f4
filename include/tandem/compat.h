/*
 * tandem/compat.h -- options of the reference programs that set options of td_train_opts
 */
#ifndef TD_COMPAT_H
#define TD_COMPAT_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What num_iter and run_iter count. */
typedef enum { TD_ITER_EPOCHS, TD_ITER_BATCHES } td_iter_unit;

/**
 * Recipes by name, and options of the reference programs. td_train_preset and td_train_resolve
 * convert them to members of td_train_opts; the job itself reads none of them.
 */
typedef struct {
    const char *preset;     /* "resnet50/90", "resnet50/DGXA100/AMP/90"; NULL: none */
    const char *cfg_file;   /* table of recipes, YAML; NULL: the built-in one */
    const char *platform;   /* "DGXA100" */
    const char *mode;       /* "convergence", ..., or one of TensorFlow's main */
    double lr_init;         /* learning rate for 256 images; -1: not set */
    double survival_prob;   /* 1 - stochastic_depth; -1: not set */
    int num_iter, run_iter; /* epochs or batches in total and for this run; -1: not set */
    td_iter_unit iter_unit;
    int warmup_steps;         /* iterations that a benchmark leaves out */
    int benchmark_iterations; /* iterations that a benchmark mode measures; -1: num_iter */
    bool cosine_lr;           /* the same as lr_schedule cosine */
    const char *to_predict;   /* image for mode predict */
    const char *model_dir;    /* the workspace; for evaluation also the folder of the checkpoint */
    const char *pipeline_config_path;           /* TensorFlow's configuration of a detector */
    const char *hparams_overrides;              /* "name=value,...": overrides of its fields */
    const char *named_workspace, *named_report; /* given by the user; NULL: not */
    char name[300]; /* set by td_train_preset: the name of the preset, or "" */
    double rule_lr; /* set by td_train_preset: the learning rate by linear scaling, or 0 */
    struct {
        int image_size, val_resize;
        const char *schedule;
    } sizes;           /* set by it: sizes of a recipe, which belong together; or 0 */
    bool counts_steps; /* set by it: a detector's configuration counts steps, not epochs */
    bool keeps_report; /* set by it: the recipe saves no checkpoints but writes a report */
} td_launch_opts;

TD_API const struct td_field *td_launch_fields(void);

#ifdef __cplusplus
}
#endif
#endif
