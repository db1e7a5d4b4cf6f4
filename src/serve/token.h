/*
 * serve/token.h -- the bearer token required in requests (RFC 6750)
 */
#ifndef TD_SERVE_TOKEN_H
#define TD_SERVE_TOKEN_H

#include <stdbool.h>

#include "base/status.h"

/**
 * Read the token from a file, without blanks and line ends around it; *token is td_alloc'ed.
 * TD_EFORMAT the token is empty, or has bytes other than visible ASCII; errors of reading.
 */
TD_CHECKED td_status td_token_read(const char *path, char **out);

/**
 * Does an "Authorization" header (NULL: none) contain the token?  Takes the same time for a wrong
 * token as for the right one.
 */
bool td_token_matches(const char *token, const char *authorization);

#endif
