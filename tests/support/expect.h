/*
 * expect.h -- cmocka checks on td_status that show the message when they fail
 *
 *     expect_ok(td_tensors_read(path, &t));
 *     expect_error(td_tensors_read(path, &t), TD_EFORMAT, "overlaps");
 */
#ifndef TD_TEST_EXPECT_H
#define TD_TEST_EXPECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/status.h"

#define expect_ok(call)              td_expect_ok(call, __FILE__, __LINE__)
#define expect_error(call, st, part) td_expect_error(call, st, part, __FILE__, __LINE__)

static inline void td_expect_ok(td_status st, const char *file, int line)
{
    if (st != TD_OK) {
        print_error("%s: %s\n", td_status_name(st), td_error_message());
        _fail(file, line);
    }
}

/* the message must contain `part` */
static inline void td_expect_error(td_status st, td_status wanted, const char *part,
                                   const char *file, int line)
{
    if (st != wanted || !strstr(td_error_message(), part)) {
        print_error("found %s: %s\nwanted %s: ... %s ...\n", td_status_name(st),
                    st == TD_OK ? "" : td_error_message(), td_status_name(wanted), part);
        _fail(file, line);
    }
}

#endif
