/*
 * compile.c -- td_compile: resolves the precision, then builds the program
 *
 * Precision `auto` is resolved by measuring programs (precision.c), so td_compile calls both.
 */
#include "pass/pass.h"
#include "runtime/program_parts.h"

td_status td_compile(const td_graph *g, td_device *dev, const td_compile_opts *opts,
                     td_program **out)
{
    td_compile_opts o = opts ? *opts : (td_compile_opts){ 0 };
    td_amp_opts amp = { 0 };
    *out = NULL;
    if (!o.amp) {
        TD_TRY(td_amp_resolve(&amp, dev));
        o.amp = &amp;
    }
    return td_program_new(g, dev, &o, out);
}

const char *td_pass_name_at(int i, const char **summary)
{
    const td_pass *pass = td_pass_at(i);
    if (pass && summary)
        *summary = pass->summary;
    return pass ? pass->name : NULL;
}
