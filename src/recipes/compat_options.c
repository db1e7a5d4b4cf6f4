/*
 * compat_options.c -- options of other programs: NVIDIA's launcher and TensorFlow's main
 *
 * A name that means one of our options is an alias.  A name that stands for several options is a
 * member of td_launch_opts, which resolve_options.c turns into those.  A name that needs nothing
 * here is accepted; a name for something that cannot be done is refused with the reason.
 */
#include "options/field.h"
#include "options/rows.h"
#include "tandem/compat.h"

static const char *const units[] = { "epoch", "batch", NULL };

#define NO_QUANT  "quantisation is not among the features of this program"
#define NO_RECORD "TFRecord files are not read; --data-dir names a folder of images"
#define NO_GPU    "there is no GPU"

/* clang-format off */
static const td_field fields[] = {
    TD_TITLE_BEHIND("Presets"),
    TD_TEXT   (td_launch_opts, preset, NULL, "NAME",
               "recipe, 'resnet50/90', 'resnet50/DGXA100/AMP/250'; 'list' shows all"),
    TD_TEXT   (td_launch_opts, cfg_file, NULL, "FILE",
               "table of recipes, YAML as the reference's configs.yml; default: the built-in one"),
    TD_TEXT   (td_launch_opts, platform, NULL, "NAME",
               "whose recipe: DGX1V, DGX1V-16G, DGX1V-32G, DGX2V, DGXA100, T4"),
    TD_TEXT   (td_launch_opts, mode, NULL, "NAME",
               "convergence, evaluate, benchmark_training, benchmark_training_short or "
               "benchmark_inference; or TensorFlow's train, train_and_evaluate, predict, "
               "training_benchmark or inference_benchmark; or SSD300's training, evaluation, "
               "benchmark-training or benchmark-inference"),
    TD_TITLE_BEHIND("TensorFlow's names"),
    TD_REAL   (td_launch_opts, lr_init, -1, -1, 1e6,
               "learning rate for 256 images, scaled by the batch; -1: --lr counts"),
    TD_INT    (td_launch_opts, num_iter, -1, -1, 1000000000, "--epochs, or batches; -1: not given"),
    TD_INT    (td_launch_opts, run_iter, -1, -1, 1000000000,
               "--run-epochs, or batches of this run; -1: not given"),
    TD_ENUM   (td_launch_opts, iter_unit, 0, units, "what these two count"),
    TD_INT    (td_launch_opts, warmup_steps, 50, 0, 1000000,
               "iterations that the benchmark modes leave out"),
    TD_BOOL_AS(td_launch_opts, cosine_lr, "cosine_lr", "use_cosine|use_cosine_lr", false,
               "the same as --lr-schedule cosine"),
    TD_TEXT   (td_launch_opts, to_predict, NULL, "FILE", "the image of --mode predict"),

    TD_TEXT   (td_launch_opts, pipeline_config_path, NULL, "FILE",
               "a detector's pipeline.config, in place of a preset"),
    TD_TEXT   (td_launch_opts, hparams_overrides, NULL, "NAME=VALUE,...",
               "other values of its fields"),

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

    TD_TITLE_BEHIND("The detectors' names"),
    TD_INT    (td_launch_opts, benchmark_iterations, -1, -1, 1000000,
               "measured iterations of --mode benchmark-training and benchmark-inference; -1: 20"),
    TD_TEXT   (td_launch_opts, model_dir, NULL, "FOLDER",
               "--workspace; without weights, --evaluate takes the checkpoint that is there"),
    TD_ALIAS  ("save", "workspace"),
    TD_ALIAS  ("num_workers", "workers"),
    TD_ALIAS  ("log_interval", "print-freq"),
    TD_ALIAS  ("json_summary", "raport-file"),
    TD_ALIAS  ("backbone_path", "pretrained-weights"),
    TD_ALIAS  ("data_layout", "memory-format"),
    TD_ALIAS  ("benchmark_warmup", "warmup-steps"),
    TD_ACCEPTED("no-cuda", NULL, NO_GPU),
    TD_ACCEPTED("allow_tf32", NULL, NO_GPU),
    TD_ACCEPTED("no-allow_tf32", NULL, NO_GPU),
    TD_ACCEPTED("allow_xla", NULL, "every graph is fused and compiled"),
    TD_ACCEPTED("sample_1_of_n_eval_on_train_examples", "N", "training data are not judged"),
    TD_REFUSED("torchvision_weights_version",
               "nothing is downloaded; --pretrained-weights takes a file of PyTorch's"),
    TD_REFUSED("eval_training_data", "'tandem evaluate --eval-training-data' judges them"),
    TD_REFUSED("checkpoint_dir", "'tandem evaluate --checkpoint-dir' judges a training's"),
    TD_REFUSED("run_once", "'tandem evaluate --checkpoint-dir --run-once' does"),

    TD_ACCEPTED("cpu", NULL, "everything runs on the CPU"),
    TD_ACCEPTED("dali", NULL, "the loader is the same for all"),
    TD_ACCEPTED("use_dali", NULL, "the loader is the same for all"),
    TD_LOGGING_ROWS,
    TD_ACCEPTED("gpu_memory_fraction", "X", NO_GPU),
    TD_ACCEPTED("gpu_id", "N", NO_GPU),
    TD_ACCEPTED("use_static_loss_scaling", NULL, "not used by the reference either"),
    TD_ACCEPTED("local_rank", "N", "one process"),
    TD_REFUSED("data_idx_dir", NO_RECORD),
    TD_REFUSED("export_dir", "a SavedModel is not written; 'tandem convert' writes weights"),
    TD_REFUSED("use_final_conv", "the reference's own graph for it cannot be built"),
    TD_REFUSED("quantize", NO_QUANT),
    TD_REFUSED("quant_delay", NO_QUANT),
    TD_REFUSED("use_qdq", NO_QUANT),
    TD_REFUSED("symmetric", NO_QUANT),
    TD_REFUSED("survival_prob", "EfficientNet is not among the networks of this program"),
    TD_REFUSED("dropout", "EfficientNet is not among the networks of this program"),
    TD_REFUSED("bn_momentum", "it is 0.1 in all networks of this program"),
    TD_REFUSED("bn_epsilon", "it is 1e-5 in all networks of this program"),
    TD_END,
};
/* clang-format on */

const td_field *td_launch_fields(void)
{
    return fields;
}
