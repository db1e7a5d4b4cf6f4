/*
 * comm/fingerprint.h -- a description of a run that its ranks compare before it begins
 *
 * Lines of text that are equal on ranks with equal settings.  td_comm_agree compares them and names
 * the first line that differs.
 *
 *     td_describe_run(config, &text);
 *     td_describe_data("data", ds, &text);             data/dataset_digest.h
 *     td_describe_program("compiled step", p, &text);  runtime/program_digest.h
 *     TD_TRY(td_comm_agree(comm, "run", td_text_get(&text)));
 */
#ifndef TD_COMM_FINGERPRINT_H
#define TD_COMM_FINGERPRINT_H

#include "base/text.h"

/**
 * Append the version, the digest of the program file, and the options in `config`, a flat JSON
 * object, except those that may differ between ranks (threads, paths).  TD_ENOMEM.
 */
TD_CHECKED td_status td_describe_run(const char *config, td_text *out);

/** The digest of a file's content; nothing if it cannot be read.  TD_ENOMEM. */
TD_CHECKED td_status td_describe_file(const char *what, const char *path, td_text *out);

#endif
