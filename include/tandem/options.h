/*
 * tandem/options.h -- which options of a struct were given
 *
 * A value that equals the default may still be a choice: `--arch resnet50` beside weights of
 * another network.  So a struct of options can hold a bit for each row of its field table, which is
 * set when a command line, a config file, a preset or the options of a checkpoint are read.
 */
#ifndef TD_OPTIONS_H
#define TD_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_field;

enum { TD_OPTIONS_MAX = 256 }; /* rows of a table with bits */

/** Bit r of word w belongs to row 64 w + r of the struct's table; all zero: nothing was given. */
typedef struct {
    uint64_t any[TD_OPTIONS_MAX / 64];  /* from wherever */
    uint64_t line[TD_OPTIONS_MAX / 64]; /* on the command line */
} td_given;

/** Was the option `name` given?  `opts` is the struct of the table `fields`, which has bits. */
TD_API bool td_options_given(const struct td_field *fields, const void *opts, const char *name);

/** Was it given, or has a program set its member to something other than the default? */
TD_API bool td_options_chosen(const struct td_field *fields, const void *opts, const char *name);

/** Was it given on the command line? */
TD_API bool td_options_given_on_line(const struct td_field *fields, const void *opts,
                                     const char *name);

/** For programs that set members themselves: the present value counts as given, or no longer. */
TD_API void td_options_mark(const struct td_field *fields, void *opts, const char *name);
TD_API void td_options_unmark(const struct td_field *fields, void *opts, const char *name);

#ifdef __cplusplus
}
#endif
#endif
