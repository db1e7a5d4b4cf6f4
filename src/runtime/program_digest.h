/*
 * runtime/program_digest.h -- a line of text that identifies a compiled program
 */
#ifndef TD_RUNTIME_PROGRAM_DIGEST_H
#define TD_RUNTIME_PROGRAM_DIGEST_H

#include "base/text.h"
#include "tandem/program.h"

/** The digest of the program's text (td_program_print).  TD_ENOMEM. */
TD_CHECKED td_status td_describe_program(const char *what, const td_program *p, td_text *out);

#endif
