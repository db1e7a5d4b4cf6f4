/*
 * program_digest.c -- the digest of a compiled program
 */
#include "runtime/program_digest.h"

#include <inttypes.h>
#include <string.h>

#include "io/digest.h"
#include "tandem/graph.h"

td_status td_describe_program(const char *what, const td_program *p, td_text *out)
{
    char *text;
    TD_TRY(td_program_print(p, &text));
    td_text_add(out, "%s: %016" PRIx64 "\n", what, td_digest_of(text, strlen(text)));
    td_text_free(text);
    return td_text_status(out);
}
