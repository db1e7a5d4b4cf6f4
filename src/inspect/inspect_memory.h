/*
 * inspect/inspect_memory.h -- draw the memory plan of a program
 */
#ifndef TD_INSPECT_INSPECT_MEMORY_H
#define TD_INSPECT_INSPECT_MEMORY_H

#include "base/text.h"
#include "tandem/program.h"

/**
 * Append an SVG: one rectangle per buffer, time (kernels, in order) to the right, addresses
 * upwards, with the live bytes at each kernel and their peak.  `what` names the program.  If there
 * are thousands of buffers, only the largest by bytes and time are drawn; the drawing states the
 * number of the others.  TD_ENOMEM.
 */
td_status td_memory_draw(const td_program *p, const char *what, td_text *svg) TD_CHECKED;

#endif
