/*
 * serve/token.h -- the bearer token required in requests (RFC 6750)
 */
#ifndef TD_SERVE_TOKEN_H
#define TD_SERVE_TOKEN_H

#include <stdbool.h>

#include "base/status.h"

/**
 * The token in a file, without blanks and line ends around it; td_alloc'ed.  TD_EFORMAT it is
 * empty, or has bytes other than visible ASCII; errors of reading.
 */
TD_CHECKED td_status td_token_read(const char *path, char **out);

/**
 * Does a header "Authorization" (NULL: none) contain the token?  Takes as long for a wrong
 * one as for the right one.
 */
bool td_token_matches(const char *token, const char *authorization);

#endif
