/*
 * cmd_doctor.c -- tandem doctor
 */
#include "cli/verb.h"
#include "tandem/graph.h"
#include "tandem/inspect.h"

static td_status run(const td_call *call)
{
    char *text;
    TD_TRY(td_doctor(call->json, &text));
    td_text_add(call->out, "%s", text);
    td_text_free(text);
    return TD_OK;
}

const td_verb td_verb_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "report the capabilities of this machine: processor, memory, backends, speed",
    .about =
        "Reports the processor and its instruction set, compute threads, loader workers, memory,\n"
        "free disk space of the current folder, packages, NUMA nodes, L3 caches and cores with\n"
        "the processors that ranks would be bound to, the CUDA plug-in, the NVIDIA driver, GPUs,\n"
        "cuDNN, cuBLASLt and NCCL, or what is missing, backends with the versions of their\n"
        "libraries, supported half types, and a short measurement of matrix products and\n"
        "convolutions with the kernels that training uses, of memory, and of the time that two\n"
        "cores need to exchange a value (core_to_core_ns).  Some 20 to 70 ns where the cores\n"
        "have a last-level cache in common, 100 to 250 where not: in a virtual machine that can\n"
        "change from one minute to the next, and with it the speed.",
    .examples = "tandem doctor\ntandem doctor --json",
    .has_json = true,
    .run = run,
};
