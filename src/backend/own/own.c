/*
 * own.c -- the list of our own kernels
 */
#include "rt/kernel.h"

extern const td_backend td_backend_own;
const td_backend td_backend_own = {
    .name = "own",
    .description = "our own vector kernels for what is bound by memory",
};
