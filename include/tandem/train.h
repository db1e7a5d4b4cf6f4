/*
 * tandem/train.h -- train a network
 *
 * A job is an options struct, a function that does it, and a result.  Every struct has a field
 * table (options/field.h) that holds names, defaults, ranges and help; the command line is made of
 * these tables.  Jobs never print: progress goes to the log, results to the result struct,
 * machine-readable records to the report file.
 *
 *     td_train_opts o;
 *     td_train_defaults(&o);
 *     o.input.data = "images";  o.model.arch = "resnet18";  o.length.epochs = 5;
 *     td_train_result r;
 *     TD_TRY(td_train(&o, &r));
 */
#ifndef TD_TRAIN_H
#define TD_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/amp.h"
#include "tandem/train_opts.h"

#ifdef __cplusplus
extern "C" {
#endif

TD_API const struct td_field *td_train_fields(void);
TD_API void td_train_defaults(td_train_opts *opts);

/** opts->amp, with --fp16 taken in. */
TD_API td_amp_opts td_train_amp(const td_train_opts *opts);

/* The tables of `opts` with their titles, for td_options_...: room for 7. */
struct td_field_group;
TD_API void td_train_groups(td_train_opts *opts, struct td_field_group *groups);

/**
 * After everything was read: options that stand for others set those (--num-iter sets --epochs),
 * and a --model that was a preset's is no file.  TD_EUSAGE: contradictions.
 */
TD_API TD_CHECKED td_status td_train_resolve(td_train_opts *opts);

/**
 * The configuration as YAML, which --config reads back (td_text_free).  It is that of the run from
 * its start: of a training, what it was resumed from is left out.
 */
TD_API TD_CHECKED td_status td_train_config_yaml(const td_train_opts *opts, char **yaml);

typedef struct {
    int64_t epoch;          /* next epoch */
    int64_t steps, skipped; /* optimiser steps in all; besides, those that loss scaling skipped */
    double loss_scale;      /* of the next step; 1 without loss scaling */
    double train_loss, val_loss; /* of the last epoch, true means; NaN: all steps were skipped */
    double top1, topk;           /* percent, last validation; -1: none was made */
    int rank;                    /* of the run's ranks; files are rank 0's */
    double best_top1;
    bool is_multi_label;                      /* then these count, not top1 and topk: */
    double map, micro_f1, macro_f1, best_map; /* 0 .. 1, last validation; -1: none was made */
    bool detects;                             /* and then these count: */
    double boxes[TD_BOX_METRICS]; /* last validation, 0 .. 1; -1: none, or nothing to find */
    double best_ap;
    double images_per_s;       /* training, waiting included, last epoch */
    double last_quarter_ips;   /* of a detector: mean of the last quarter of its lines' speeds */
    int n_lines, n_lines_kept; /* all and those; 0: not a line was whole, and the mean is NaN */
    bool was_stopped;          /* by a signal, after saving */
    char checkpoint[512];      /* path written last, or "" */
    char best[512];            /* path of the run's best weights, or "" */
    bool has_ema;              /* this run validated averaged weights; their last validation: */
    double ema_top1, ema_topk, ema_loss; /* percent, percent, true mean */
    double ema_map, ema_micro_f1;        /* a multi-label network's, 0 .. 1 */
    double ema_boxes[TD_BOX_METRICS];    /* a detector's metrics, 0 .. 1; -1: no objects */
    char arch[64];                       /* the network's, or the graph file's name, cut */
    char *profile; /* with opts->prof: where the steps' time went (td_text_free); or NULL */
} td_train_result;

/**
 * td_train begins with it.  TD_EUSAGE: an option of the reference programs that is not there yet,
 * or out of range; TD_EUSAGE: --fp16 and --amp.
 */
TD_API TD_CHECKED td_status td_train_check(const td_train_opts *opts);

/** TD_EUSAGE, TD_EARG: options of one command line that contradict each other. */
TD_API TD_CHECKED td_status td_train_check_line(const td_train_opts *opts);

/**
 * Train.  TD_ESTOPPED is never returned: a signal saves and sets was_stopped.  TD_EREQUIRED:
 * finished, but below `require`.  out->profile is NULL after every other failure.
 */
TD_API TD_CHECKED td_status td_train(const td_train_opts *opts, td_train_result *out);

/**
 * The options a checkpoint was made with, as one flat JSON object (td_text_free): what --resume
 * goes on with where the command line says nothing.  Left out are those that belong to one run
 * only (resume, run_iters, prof, ...), and every option that names a file or folder: a checkpoint
 * decides neither what is read nor what is written.  TD_EFORMAT: not a checkpoint, or it has an
 * option that no checkpoint has.
 */
TD_API TD_CHECKED td_status td_train_stored_options(const char *checkpoint, char **json);

#ifdef __cplusplus
}
#endif
#endif
