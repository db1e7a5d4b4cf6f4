/*
 * cmd_benchmark.c -- tandem benchmark [DATA]
 */
#include <string.h>

#include "cli/evaluation.h"
#include "cli/own_ranks_start.h"
#include "cli/verb.h"
#include "tandem/amp.h"
#include "tandem/benchmark.h"
#include "tandem/detection.h"
#include "tandem/graph.h"
#include "tandem/input.h"
#include "tandem/model.h"

static void groups(void *opts, td_field_group *out)
{
    td_benchmark_opts *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Data", td_input_fields(), &o->input };
    out[2] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[3] = (td_field_group){ "Measurement", td_benchmark_fields(), o };
}

static td_status preset(void *opts, const td_field_group *groups, td_arena *arena)
{
    td_benchmark_opts *o = opts;
    td_boxes_opts boxes; /* a benchmark uses the detector's default limits */
    (void)groups;
    return td_cli_pipeline(o->pipeline_config_path, o->hparams_overrides,
                           &(td_cli_network){ &o->model, &o->input, &boxes }, arena);
}

static td_status resolve(const td_call *call)
{
    td_benchmark_opts *o = call->opts;
    if (call->n_args > 0)
        o->input.data = call->args[0];
    return TD_OK;
}

static td_status check(const void *opts)
{
    return td_amp_check(&((const td_benchmark_opts *)opts)->amp);
}

static const char *job(const td_call *call)
{
    static const char *const jobs[] = { NULL, NULL, "data", "op", "allreduce", "scaling" };
    return jobs[((const td_benchmark_opts *)call->opts)->mode];
}

/* Is it the training of one network, as several ranks can do it? */
static bool is_divisible(const td_benchmark_opts *o)
{
    const bool is_table = o->batch_sizes || o->nproc || o->precisions || o->walkthrough;
    return o->mode == TD_BENCHMARK_TRAINING && !is_table && !o->largest_batch && o->prof <= 0 &&
           !o->trace && !o->memory_limit;
}

static td_status start(const td_call *call, bool *is_done)
{
    const td_benchmark_opts *o = call->opts;
    if (!is_divisible(o))
        return TD_OK;
    return td_cli_own_ranks(call,
                            &(td_own_ranks){ .module = "benchmark",
                                             .to_prevent = "--threads N",
                                             .device = o->device.name,
                                             .batch = o->batch_size,
                                             .threads = o->device.threads,
                                             .log = o->log },
                            is_done);
}

static td_status run(const td_call *call)
{
    td_benchmark_opts *o = call->opts;
    char *json, *profile;
    o->as_table = !call->json;
    o->profile = call->json ? NULL : &profile;
    TD_TRY(td_benchmark(o, &json));
    if (!*json) { /* only rank 0 prints */
        td_text_free(json);
        return TD_OK;
    }
    td_text_add(call->out, td_text_ends(json, "\n") ? "%s" : "%s\n", json);
    if (o->profile && profile)
        td_text_add(call->out, "\n%s", profile);
    td_text_free(json);
    if (o->profile)
        td_text_free(profile);
    return TD_OK;
}

const td_verb td_verb_benchmark = {
    .name = "benchmark",
    .arguments = "[DATA]",
    .summary = "measure the speed of training, inference, data loading, single ops or allreduce",
    .about =
        "Measures iterations after a warm-up and reports the median and the spread.\n"
        "bound_images_per_s is the limit set by the machine: the batch size divided by the\n"
        "total time of the convolutions and matrix products of a step, each computed directly;\n"
        "chosen_bound_images_per_s is the same for the algorithms that the step uses, without\n"
        "the transforms of filters, if it computes some by Winograd's. --mode data measures\n"
        "decoding and cropping of DATA; --mode allreduce, run under 'tandem launch', measures\n"
        "sums over ranks, with --device cuda those of NCCL; --mode scaling predicts training\n"
        "on many ranks. Memory is reported as measured (peak resident; with --device cuda also\n"
        "the GPU's) and as planned. fp16 trains with loss scaling.\n\n"
        "Training speed is also reported as in the SSD320 scripts: last_quarter is the mean\n"
        "speed over the last quarter of the progress lines, one line per 100 iterations, or\n"
        "per twelfth of a shorter run.\n\n"
        "--precisions, --nproc and --batch-sizes print a table with one row per combination,\n"
        "each measured in its own processes. --nproc starts ranks as 'tandem launch' does,\n"
        "each with --batch-size images and --threads threads, by default the number available\n"
        "to each rank in the row with the most ranks. scaling is the speed divided by the\n"
        "number of ranks and by the speed of one rank, if 1 is in the list. Without --nproc and\n"
        "--threads, --mode training on several NUMA nodes runs as 'tandem train' does: a rank on\n"
        "each, which share the batch.\n\n"
        "--mode scaling measures the kernels of a training step and predicts its time on --ranks\n"
        "ranks over links of --bandwidth and --latency: gradients are summed in buckets while\n"
        "the backward pass goes on, and waiting_ms is the part that it does not hide. Run on\n"
        "several ranks, it also measures their link and their steps, and compares these with\n"
        "the prediction. docs/scaling.md describes the model.\n\n"
        "--walkthrough trains four times, each in its own process: in float32; in mixed\n"
        "precision (bf16, or --precision); with the pass fuse in addition, in place of XLA;\n"
        "and with twice the batch size. With --device cuda it trains in TF32, too, mixed\n"
        "precision is fp16, and the pass norms belongs to what is fused.\n\n"
        "--largest-batch plans memory and trains one image to measure the process itself. The\n"
        "limit covers everything that 'tandem train' holds: parameters, momentum buffers,\n"
        "activations and scratch memory of the training step; the same for validation; the\n"
        "batches of both loaders (--prefetch); the copies made while a checkpoint is written;\n"
        "and the process. It does not include the images being decoded by workers.",
    .examples = "tandem benchmark --mode training --arch resnet50 -b 32 --json\n"
                "tandem benchmark --mode inference --arch resnet50 -b 1\n"
                "tandem benchmark --mode inference --arch resnet50 --batch-sizes "
                "1,2,4,8,16,32,64,128,256 --json\n"
                "tandem benchmark --arch resnet50 --nproc 1,2 --precisions fp32,bf16\n"
                "tandem benchmark --arch ssd320 --nproc 1,4,8 --precisions fp32,bf16 --iters 1250 "
                "--warmup 0 --json\n"
                "tandem benchmark --walkthrough --arch resnet50 -b 32 --warmup-steps 2 --num-iter "
                "5\n"
                "tandem benchmark --largest-batch --arch resnet50 --memory-limit 4G\n"
                "tandem benchmark --mode scaling --arch resnet50 -b 32 --bandwidth 25,200\n"
                "tandem benchmark --mode data flowers --threads 2\n"
                "tandem benchmark --mode op --lines ops.lines --filter 'conv*'",
    .n_args_max = 1,
    .has_json = true,
    .opts_bytes = sizeof(td_benchmark_opts),
    .groups = groups,
    .preset = preset,
    .check = check,
    .resolve = resolve,
    .start = start,
    .job = job,
    .run = run,
};
