// What this process exits with where its control thread ends it after a wish to stop, because its
// main thread did not: 130 unless a job says otherwise. A property of the process, as an exit
// status is. Thread: any; also from a signal handler.
#pragma once

namespace weft::cluster {

void SetStoppedStatus(int status);

}  // namespace weft::cluster
