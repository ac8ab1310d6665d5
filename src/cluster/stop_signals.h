// How this process and its job treat a request to stop.
#pragma once

#include <csignal>

namespace weft::cluster {

// The signals that ask a job to stop: SIGINT, SIGTERM, SIGUSR1 and SIGHUP.
sigset_t StopSignals();

// Whether this process ignores SIGHUP (sent when a terminal or ssh session ends), as under nohup;
// it then stays ignored.
bool HangupsIgnored();

// Blocks these signals from a worker's start until its job sets their meaning, so that no signal is
// lost, whatever its disposition. A job that does not handle the signals ignores them. Thread:
// main, before it starts others.
void HoldStops();
// Unblocks the signals that are still held, if any. Thread: main.
void ReleaseStops();
// Leaves SIGTERM to the control plane, which reads it from a descriptor: it stays blocked in this
// thread and in all threads that it starts. Thread: main.
void GiveTermToControl();

// ---- Process-wide settings, like an exit status. Thread: any; also from a signal handler. ----

// The exit status when the control thread ends the process after a request to stop because the main
// thread did not: 130 unless a job sets another.
void SetStoppedStatus(int status);

// On SIGTERM, a rank of a listening worker says goodbye to the others, unless `takes` returns true:
// then the job treats the signal as its own request to stop, and all ranks end in order. The
// control thread calls `takes` under its lock; of Cluster, it may call only RequestStop().
void SetTermTaker(bool (*takes)());

}  // namespace weft::cluster
