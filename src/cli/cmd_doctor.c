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
    .summary = "what this machine offers: processor, memory, backends, measured speed",
    .about =
        "Processor and instruction set, threads, memory, room on the disk of the working folder,\n"
        "backends with the versions of their libraries, half types, and a short measurement of\n"
        "matrix products and convolutions through the same kernels that training uses.",
    .examples = "tandem doctor\ntandem doctor --json",
    .has_json = true,
    .run = run,
};
