/*
 * inspect/core_to_core.h -- how long what one core writes takes to another
 */
#ifndef TD_INSPECT_CORE_TO_CORE_H
#define TD_INSPECT_CORE_TO_CORE_H

/**
 * Nanoseconds from a thread's store to another thread's load of the new value, wherever the system
 * runs the two: the mean of the fastest of several batches, in a twentieth of a second.  0: not
 * measured, because there is one processor or the threads did not run at the same time.
 */
double td_core_to_core_ns(void);

#endif
