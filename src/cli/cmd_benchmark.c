/*
 * cmd_benchmark.c -- tandem benchmark [DATA]
 */
#include <string.h>

#include "cli/evaluation.h"
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

/* the object's members one a line, nesting by indentation, without the punctuation */
static void add_text(const char *json, td_text *out)
{
    int depth = 0;
    bool in_text = false;
    for (const char *p = json; *p; p++) {
        bool is_quote = *p == '"' && (p == json || p[-1] != '\\');
        in_text ^= is_quote;
        if (is_quote || (!in_text && (*p == ':' || *p == '\n')))
            continue;
        if (!in_text && (*p == '{' || *p == '[' || *p == ',')) {
            depth += *p != ',';
            td_text_add(out, depth == 1 && *p != ',' ? "" : "\n");
            td_text_add(out, "%*s", 2 * (depth - 1), "");
            p += strspn(p + 1, " ");
        } else if (!in_text && (*p == '}' || *p == ']')) {
            depth--;
        } else {
            td_text_add_bytes(out, p, 1);
        }
    }
    td_text_add(out, "\n");
}

static td_status preset(void *opts, const td_field_group *groups, td_arena *arena)
{
    td_benchmark_opts *o = opts;
    td_boxes_opts boxes; /* a benchmark takes the detector's own limits */
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
    static const char *const jobs[] = { NULL, NULL, "data", "op", "allreduce" };
    return jobs[((const td_benchmark_opts *)call->opts)->mode];
}

static td_status run(const td_call *call)
{
    td_benchmark_opts *o = call->opts;
    char *json, *profile;
    o->as_table = !call->json && (o->walkthrough || o->largest_batch || o->batch_sizes ||
                                  o->nproc || o->precisions);
    o->profile = call->json ? NULL : &profile;
    TD_TRY(td_benchmark(o, &json));
    if (!*json) { /* rank 0 speaks for all */
        td_text_free(json);
        return TD_OK;
    }
    if (call->json || o->as_table)
        td_text_add(call->out, td_text_ends(json, "\n") ? "%s" : "%s\n", json);
    else
        add_text(json, call->out);
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
    .summary = "how fast training, inference, the input, single ops or sums over ranks run here",
    .about =
        "Iterations after a warm-up that does not count; median and spread; with them the "
        "machine's\n"
        "own limit, bound_images_per_s: the batch divided by the summed time of the step's\n"
        "convolutions and matrix products alone.  --mode data measures decoding and cropping "
        "of DATA;\n"
        "--mode allreduce, under 'tandem launch', sums over ranks.\n"
        "Memory: the peak of what was resident, and what was planned.  fp16 trains with loss "
        "scaling.\n\n"
        "Training is also measured as the SSD320 edition's scripts do: last_quarter is the mean "
        "speed of\n"
        "the last quarter of the lines of 100 iterations; of a shorter run a line is a twelfth "
        "of it.\n\n"
        "--precisions, --nproc and --batch-sizes make a table with a row for each combination, "
        "every one in\n"
        "processes of its own.  --nproc starts ranks as 'tandem launch' does, each with "
        "--batch-size\n"
        "images and as many threads as it has in the row of the most ranks, or --threads.  "
        "scaling is the\n"
        "speed over that of one rank and over the number of ranks, where 1 is in the list.\n\n"
        "--walkthrough trains four times, each in a process of its own: float32; in mixed "
        "precision (bf16,\n"
        "or what --precision says); also with the pass fuse, in place of XLA; and that "
        "with twice the\nbatch.\n\n"
        "--largest-batch plans, and trains one image to measure the process itself.  What "
        "has to fit is\n"
        "all that 'tandem train' holds: the step's parameters, velocities, activations and "
        "scratch; the same\n"
        "of validation; both loaders' batches (--prefetch); the copies while a checkpoint is "
        "written; the\n"
        "process.  Not counted are the images that workers are decoding.",
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
                "tandem benchmark --mode data flowers --threads 2\n"
                "tandem benchmark --mode op --lines tests/ops/resnet50.lines --filter 'conv*'",
    .n_args_max = 1,
    .has_json = true,
    .opts_bytes = sizeof(td_benchmark_opts),
    .groups = groups,
    .preset = preset,
    .check = check,
    .resolve = resolve,
    .job = job,
    .run = run,
};
