// What this process and its job make of a wish to stop.
#pragma once

#include <csignal>

namespace weft::cluster {

// SIGINT, SIGTERM, SIGUSR1 and SIGHUP, which ask a job to stop.
sigset_t StopSignals();

// A terminal or an ssh session that ends sends SIGHUP. Whether this process ignores it, as nohup
// starts processes; then it is left ignored.
bool HangupsIgnored();

// From the start of a worker until its job says what these mean, they are held: blocked, so that
// none is lost, whatever its disposition. A job that does not ask for them ignores them then.
// Thread: main, before it starts others.
void HoldStops();
// Lets those through that are still held. Where nothing was held: nothing. Thread: main.
void ReleaseStops();
// SIGTERM is the control plane's, which reads it from a descriptor: it stays blocked, for this
// thread and whatever threads it starts. Thread: main.
void GiveTermToControl();

// ---- Properties of the process, as an exit status is. Thread: any; also from a signal handler.
// ---

// What it exits with where its control thread ends it after a wish to stop, because its main thread
// did not: 130 unless a job says otherwise.
void SetStoppedStatus(int status);

// A rank that a listening worker started takes its leave of the others at a SIGTERM, unless `takes`
// says true: then the job has taken the signal as its own wish, and all ranks end in order. Called
// on the control thread, which holds its lock: RequestStop() is all of Cluster that it may call.
void SetTermTaker(bool (*takes)());

}  // namespace weft::cluster
