/*
 * cmd_launch.c -- tandem launch --nproc W VERB ...
 */
#include <stdio.h>
#include <string.h>

#include "cli/verb.h"
#include "tandem/launch.h"

static void groups(void *opts, td_field_group *out)
{
    out[0] = (td_field_group){ "Ranks", td_ranks_fields(), opts };
}

static td_status check_verb(const char *name, const td_verb **verb)
{
    static const char *const verbs[] = { "train", "evaluate", "benchmark", "doctor" };
    TD_TRY(td_verb_find(name, verb));
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verbs[i], name) == 0)
            return TD_OK;
    return td_error(TD_EUSAGE, "'%s' runs in one process, wanted train, evaluate or benchmark",
                    name);
}

static bool has_option(const td_verb *verb, void *opts, const char *name)
{
    td_field_group groups[TD_GROUPS_MAX + 1] = { 0 };
    if (verb->groups)
        verb->groups(opts, groups);
    for (int i = 0; groups[i].fields; i++)
        if (td_field_find(groups[i].fields, name))
            return true;
    return false;
}

/* Is the word "--nproc=2" or "-n" of `launch`, and not of the verb?  `name`: "nproc" or "n". */
static bool is_of_launch(const char *word, const td_verb *verb, void *opts, char name[64])
{
    const size_t dashes = strspn(word, "-");
    snprintf(name, 64, "%.*s", (int)strcspn(word + dashes, "="), word + dashes);
    return dashes == (strlen(name) == 1 ? 1 : 2) && td_field_find(td_ranks_fields(), name) &&
           !has_option(verb, opts, name);
}

/* Refuse "launch train DATA --nproc 2": the options of launch precede the verb. */
static td_status check_order(const td_verb *verb, const td_call *call)
{
    char name[64];
    td_arena arena;
    td_status st = TD_OK;
    td_arena_init(&arena);
    void *opts = td_arena_alloc(&arena, 1, verb->opts_bytes + 1);
    for (int i = 1; opts && st == TD_OK && i < call->n_args; i++) {
        if (strcmp(call->args[i], "--") == 0)
            break;
        if (is_of_launch(call->args[i], verb, opts, name))
            st = td_error(TD_EUSAGE, "'%.*s' is an option of launch, wanted before '%s'",
                          (int)strcspn(call->args[i], "="), call->args[i], verb->name);
    }
    td_arena_release(&arena);
    return opts ? st : TD_ENOMEM;
}

/* Errors of the verb's command line are printed once, here, and not by every rank. */
static td_status run(const td_call *call)
{
    const td_verb *verb;
    TD_TRY(check_verb(call->args[0], &verb));
    TD_TRY(check_order(verb, call));
    td_status st = td_verb_check_line(verb, call->n_args - 1, call->args + 1);
    if (st != TD_OK) {
        *call->code = td_verb_failed(verb, st);
        return TD_OK;
    }
    return td_ranks_run(call->opts, call->n_args, call->args, call->code);
}

const td_verb td_verb_launch = {
    .name = "launch",
    .arguments = "VERB ARGUMENTS...",
    .summary = "run training or evaluation on several ranks",
    .about =
        "Runs VERB in --nproc processes (ranks), which divide the data and sum their\n"
        "gradients. The result is that of one rank with --optimizer-batch-size set to nproc\n"
        "times --batch-size. Each rank gets an equal share of the processor cores and one\n"
        "thread per core. Rank 0 writes all files and prints the progress; the output of\n"
        "other ranks goes to --log-dir. If a rank fails, dies or hangs, all ranks are ended\n"
        "within seconds, and the error names it. Ctrl-C finishes the current step on all\n"
        "ranks and saves a checkpoint; a second Ctrl-C ends all ranks at once.\n\n"
        "--restarts N starts all ranks again after a rank was killed by a signal (also for\n"
        "lack of memory) or stopped responding, or after a machine of --hosts was lost, at\n"
        "most N times: at once, then after a pause of one second. A training resumes from\n"
        "the last checkpoint that this run has written (--checkpoint-every), with all\n"
        "options of the command line, in the same folder; without one, and for other verbs,\n"
        "it begins again. A rank that exits by itself is not restarted: a usage error, data\n"
        "that cannot be read, a loss that is not finite, a stop by Ctrl-C. With --min-ranks M\n"
        "a restart uses one rank less after a rank was killed, and under --hosts the machines\n"
        "that mpirun can still reach, if M ranks remain. The images per optimizer step stay\n"
        "the same and so does their order, by accumulation; a number of ranks that does not\n"
        "divide them is left out.\n\n"
        "Ranks on several machines are started by MPI, Open MPI or MPICH: run tandem without\n"
        "launch under mpirun or srun, and it detects its rank. --hosts does that with the\n"
        "mpirun that is installed. Ranks that nothing has bound bind themselves to equal parts\n"
        "of their machine (--cpu-affinity). The program, the current folder and the data must have "
        "the\n"
        "same paths on all machines; the environment variables TANDEM_* and OMP_* are passed\n"
        "on. The result does not depend on how the ranks are started.",
    .examples =
        "tandem launch --nproc 2 train flowers --arch resnet18 -b 32\n"
        "tandem launch --nproc 4 --log-dir logs evaluate flowers --weights best.safetensors\n"
        "tandem launch --hosts node1,node2 --nproc 4 train flowers --preset resnet50/90\n"
        "tandem launch --nproc 4 --restarts 3 train flowers --checkpoint-every 500\n"
        "mpirun -np 4 --bind-to none --host node1:2,node2:2 tandem train flowers\n"
        "srun -N 2 --ntasks-per-node 4 --mpi=pmix tandem train flowers --preset resnet50/90\n"
        "tandem launch --nproc 2 benchmark --mode allreduce",
    .n_args_min = 1,
    .n_args_max = -1,
    .passes_arguments = true,
    .opts_bytes = sizeof(td_ranks_opts),
    .groups = groups,
    .run = run,
};
