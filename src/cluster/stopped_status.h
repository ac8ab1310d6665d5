// What a job says of this process and a wish to stop: properties of the process, as an exit status
// is. Thread: any; also from a signal handler.
#pragma once

namespace weft::cluster {

// What it exits with where its control thread ends it after a wish to stop, because its main thread
// did not: 130 unless a job says otherwise.
void SetStoppedStatus(int status);

// A rank that a listening worker started takes its leave of the others at a SIGTERM, unless `takes`
// says true: then the job has taken the signal as its own wish, and all ranks end in order. Called
// on the control thread, which holds its lock: RequestStop() is all of Cluster that it may call.
void SetTermTaker(bool (*takes)());

}  // namespace weft::cluster
