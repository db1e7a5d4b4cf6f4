/*
 * golden.h -- the folders of expected numbers, and the rules of their case files
 *
 * $TANDEM_GOLDEN (tests/golden where that is not set) has one sub-folder per part.  A test without
 * the folder of its part says so and ends with 77, which ctest counts as skipped.
 */
#ifndef TD_TEST_GOLDEN_H
#define TD_TEST_GOLDEN_H

#include <stdint.h>

#include "base/json.h"
#include "io/safetensors.h"

/** End the test with 77 unless the folder of `part` exists. */
void td_golden_require(const char *part);

/** "<golden>/<part>/<file>", valid until the next call. */
const char *td_golden_path(const char *part, const char *file);

/** A case file; the caller frees.  What is missing or malformed fails the running test. */
td_json *td_golden_json(const char *part, const char *file);
td_tensors *td_golden_tensors(const char *part, const char *file);

/** Members of a JSON object that must be there; rows: an array or object that is not empty. */
const td_json *td_golden_rows(const td_json *object, const char *key);
double td_golden_number(const td_json *object, const char *key);
int td_golden_int(const td_json *object, const char *key);
const char *td_golden_text(const td_json *object, const char *key);

/** The element that sample k of a tensor of n elements shows. */
int64_t td_golden_sample(int64_t k, int64_t n);

#endif
