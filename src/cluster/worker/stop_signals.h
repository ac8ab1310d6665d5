// How this process and its job handle a request to stop.
#pragma once

#include <csignal>

namespace weft::cluster {

// The signals that stop a job: SIGINT, SIGTERM, SIGUSR1 and SIGHUP.
sigset_t StopSignals();

// Whether this process ignores SIGHUP (sent when a terminal or ssh session ends), as under nohup;
// it then stays ignored.
bool HangupsIgnored();

// Ends the process by the default action of SIGINT or SIGTERM. PID 1 of a container has no default
// actions: it exits with status 128 + number. Thread: any; also from a signal handler.
[[noreturn]] void EndBySignal(int number);

// Blocks the stop signals. A worker calls this at its start, so that no signal is lost before the
// job decides how to treat them and calls ReleaseStops. A job that does not handle the signals
// ignores them. Thread: main, before it starts others.
void HoldStops();
// Unblocks the signals that are still held, if any. Thread: main.
void ReleaseStops();
// Leaves SIGTERM to the control thread, which reads it from a descriptor: SIGTERM stays blocked in
// this thread and in all threads that this thread starts. Thread: main.
void GiveTermToControl();

// ---- Settings of the whole process. Thread: any; also from a signal handler. ----

// After a request to stop, the control thread ends the process if the main thread does not. This
// sets the exit status for that case; the default is 130.
void SetStoppedStatus(int status);

// On SIGTERM, a rank of a listening worker leaves: for the other ranks it is a lost rank. If
// `takes` returns true, the signal instead stops the job, and all ranks end cleanly. The control
// thread calls `takes` under its lock; of Cluster, it may call only RequestStop().
void SetTermTaker(bool (*takes)());

}  // namespace weft::cluster
