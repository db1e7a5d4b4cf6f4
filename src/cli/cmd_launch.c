/*
 * cmd_launch.c -- tandem launch --nproc W VERB ...
 */
#include <string.h>

#include "cli/verb.h"
#include "tandem/launch.h"

static void groups(void *opts, td_field_group *out)
{
    out[0] = (td_field_group){ "Ranks", td_ranks_fields(), opts };
}

static td_status check_verb(const char *name)
{
    static const char *const verbs[] = { "train", "evaluate", "benchmark", "doctor" };
    const td_verb *verb;
    TD_TRY(td_verb_find(name, &verb));
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verbs[i], name) == 0)
            return TD_OK;
    return td_error(TD_EUSAGE, "'%s' runs in one process; train, evaluate and benchmark have ranks",
                    name);
}

static td_status run(const td_call *call)
{
    TD_TRY(check_verb(call->args[0]));
    return td_ranks_run(call->opts, call->n_args, call->args, call->code);
}

const td_verb td_verb_launch = {
    .name = "launch",
    .arguments = "VERB ARGUMENTS...",
    .summary = "several ranks that train, or evaluate, together",
    .about =
        "Starts VERB in --nproc processes that share the data and sum their gradients: as one "
        "rank\n"
        "does with --optimizer-batch-size nproc times --batch-size.  Each gets an equal share of "
        "the\n"
        "cores, and as many threads.  Rank 0 writes the files and speaks; what the others say goes "
        "to\n"
        "--log-dir.  A rank that fails, dies or hangs ends all of them within seconds, by name.\n"
        "Ctrl-C once has all finish the step, and rank 0 save; twice ends all at once.\n\n"
        "--hosts starts --nproc of them on each of several machines, through ssh without a "
        "question:\n"
        "the program, the folder it is called in and the data are there under the same paths; the\n"
        "variables TANDEM_* and OMP_* go along.  Or start the same line on each machine by hand, "
        "with\n"
        "its --node-rank, rank 0's --master-addr and one secret as TANDEM_TOKEN in the "
        "environment.\n"
        "Under mpirun and srun no launch is needed: "
        "ranks\n"
        "are found by themselves.",
    .examples =
        "tandem launch --nproc 2 train flowers --arch resnet18 -b 32\n"
        "tandem launch --nproc 4 --log-dir logs evaluate flowers --weights best.safetensors\n"
        "tandem launch --hosts node1,node2 --nproc 4 train flowers --preset resnet50/90\n"
        "tandem launch --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --nproc 4 train set\n"
        "tandem launch --nproc 2 benchmark --mode allreduce",
    .n_args_min = 1,
    .n_args_max = -1,
    .hands_on = true,
    .opts_bytes = sizeof(td_ranks_opts),
    .groups = groups,
    .run = run,
};
