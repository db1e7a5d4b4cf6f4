/*
 * compat_options.c -- options of other programs: NVIDIA's launcher and TensorFlow's main
 *
 * A name that corresponds to one of our options is an alias.  A name that corresponds to several
 * options is a member of td_launch_opts, which resolve_options.c converts to those.  A name that
 * has no effect here is accepted; a name whose function is not supported is refused with the
 * reason.
 */
#include "options/field.h"
#include "options/rows.h"
#include "tandem/compat.h"

static const char *const units[] = { "epoch", "batch", NULL };

#define NO_QUANT "Tandem has no quantized training"
#define DEVICE   "--device chooses processor or GPU"
#define TF32     "--precision tf32 requests it"

/* clang-format off */
static const td_field fields[] = {
    TD_TITLE_SECONDARY("Presets"),
    TD_TEXT   (td_launch_opts, preset, NULL, "NAME",
               "recipe, for example 'resnet50/90' or 'resnet50/DGXA100/AMP/250'; 'list' prints "
               "all"),
    TD_TEXT   (td_launch_opts, cfg_file, NULL, "FILE",
               "YAML file of recipes in the format of the reference's configs.yml; default: "
               "built in"),
    TD_TEXT   (td_launch_opts, platform, NULL, "NAME",
               "platform of the recipe: DGX1V, DGX1V-16G, DGX1V-32G, DGX2V, DGXA100, T4"),
    TD_TEXT   (td_launch_opts, mode, NULL, "NAME",
               "mode of the reference's launcher: convergence, evaluate, benchmark_training, "
               "benchmark_training_short or benchmark_inference; of the TensorFlow program: "
               "train, train_and_evaluate, predict, training_benchmark or inference_benchmark; "
               "of SSD300's scripts: training, evaluation, benchmark-training or "
               "benchmark-inference"),
    TD_TITLE_SECONDARY_RENAMED("Options of the TensorFlow programs", "tensorflow's_names"),
    TD_REAL   (td_launch_opts, lr_init, -1, -1, 1e6,
               "learning rate for 256 images, scaled by the batch size; -1: use --lr"),
    TD_REAL   (td_launch_opts, survival_prob, -1, -1, 1,
               "1 minus --stochastic-depth; -1: use --stochastic-depth"),
    TD_INT    (td_launch_opts, num_iter, -1, -1, 1000000000,
               "total training in units of --iter-unit; -1: use --epochs"),
    TD_INT    (td_launch_opts, run_iter, -1, -1, 1000000000,
               "length of this run in units of --iter-unit; -1: use --run-epochs"),
    TD_ENUM   (td_launch_opts, iter_unit, TD_ITER_EPOCHS, units,
               "unit of --num-iter and --run-iter"),
    TD_INT    (td_launch_opts, warmup_steps, 50, 0, 1000000,
               "warm-up iterations that benchmark modes leave out of the measurement"),
    TD_BOOL_AS(td_launch_opts, cosine_lr, "cosine_lr", "use_cosine|use_cosine_lr", false,
               "same as --lr-schedule cosine"),
    TD_TEXT   (td_launch_opts, to_predict, NULL, "FILE", "image to classify with --mode predict"),

    TD_TEXT   (td_launch_opts, pipeline_config_path, NULL, "FILE",
               "read the recipe from a detector's pipeline.config instead of a preset"),
    TD_TEXT   (td_launch_opts, hparams_overrides, NULL, "NAME=VALUE,...",
               "override fields of the pipeline.config"),

    TD_ALIAS  ("data_dir", "data"),
    TD_ALIAS  ("results_dir", "workspace"),
    TD_ALIAS  ("log_filename", "raport-file"),
    TD_ALIAS  ("display_every", "print-freq"),
    TD_ALIAS  ("finetune_checkpoint", "pretrained-weights"),
    TD_ALIAS  ("lr_warmup_epochs", "warmup"),
    TD_ALIAS  ("weight_init", "conv-init"),
    TD_ALIAS  ("loss_scale", "static-loss-scale"),
    TD_ALIAS  ("synthetic_data_size", "image-size"),
    TD_ALIAS  ("data_format", "memory-format"),
    TD_ALIAS  ("data-backends", "data-backend"),

    TD_TITLE_SECONDARY_RENAMED("Options of the detector programs", "the_detectors'_names"),
    TD_INT    (td_launch_opts, benchmark_iterations, -1, -1, 1000000,
               "iterations to measure with --mode benchmark-training and benchmark-inference; "
               "-1: 20"),
    TD_TEXT   (td_launch_opts, model_dir, NULL, "FOLDER",
               "same as --workspace; --evaluate without weights uses the checkpoint in it"),
    TD_ALIAS  ("save", "workspace"),
    TD_ALIAS  ("num_workers", "workers"),
    TD_ALIAS  ("log_interval", "print-freq"),
    TD_ALIAS  ("json_summary", "raport-file"),
    TD_ALIAS  ("backbone_path", "pretrained-weights"),
    TD_ALIAS  ("data_layout", "memory-format"),
    TD_ALIAS  ("benchmark_warmup", "warmup-steps"),
    TD_ACCEPTED("no-cuda", NULL, DEVICE),
    TD_ACCEPTED("allow_tf32", NULL, TF32),
    TD_ACCEPTED("no-allow_tf32", NULL, TF32),
    TD_ACCEPTED("allow_xla", NULL, "every graph is compiled and fused"),
    TD_ACCEPTED("sample_1_of_n_eval_on_train_examples", "N", "training data are not evaluated"),
    TD_REFUSED("torchvision_weights_version",
               "weights are not downloaded; use --pretrained-weights FILE"),
    TD_REFUSED("weights", "use --pretrained-weights, or --resume for a checkpoint"),
    TD_REFUSED("eval_training_data", "use 'tandem evaluate --eval-training-data'"),
    TD_REFUSED("checkpoint_dir", "use 'tandem evaluate --checkpoint-dir'"),
    TD_REFUSED("run_once", "use 'tandem evaluate --checkpoint-dir --run-once'"),

    TD_ACCEPTED("cpu", NULL, DEVICE),
    TD_ACCEPTED("dali", NULL, "all data backends use the same loader"),
    TD_ACCEPTED("use_dali", NULL, "all data backends use the same loader"),
    TD_LOGGING_ROWS,
    TD_ACCEPTED("gpu_memory_fraction", "X", "a GPU gives what is planned"),
    TD_ACCEPTED("gpu_id", "N", "CUDA_VISIBLE_DEVICES chooses a GPU"),
    TD_ACCEPTED("use_static_loss_scaling", NULL, "the reference program does not use it either"),
    TD_ACCEPTED("local_rank", "N", "one process"),
    TD_ACCEPTED("data_idx_dir", "DIR", "records are found without index files"),
    TD_REFUSED("export_dir", "use 'tandem convert' to export weights"),
    TD_REFUSED("use_final_conv", "the reference's own graph for it cannot be built"),
    TD_REFUSED("quantize", NO_QUANT),
    TD_REFUSED("quant_delay", NO_QUANT),
    TD_REFUSED("use_qdq", NO_QUANT),
    TD_REFUSED("symmetric", NO_QUANT),
    TD_END,
};
/* clang-format on */

const td_field *td_launch_fields(void)
{
    return fields;
}
