// Starts a rank as a child process of this program, with its end of a control connection. Secrets
// travel through a pipe, never on the command line or in the environment.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "cluster/join/handshake.h"
#include "cluster/socket.h"

namespace weft::cluster {

// The content of a handle, the word after --handle: "local:5,6".
struct Inheritance {
    Fd control;
    Session session;
    bool local = false;  // rank 0 is the parent (false: a listener)
};

// Starts /proc/self/exe with `arguments` and "--handle HANDLE". The child blocks SIGINT, SIGTERM
// and SIGUSR1 (HoldStops), and ignores them if it unblocks them. It reads /dev/null, prints to
// standard error only, inherits no other descriptor, runs on `cores`, and is killed when the
// calling thread ends. Errors: kIo.
Result<pid_t> SpawnRank(const std::vector<std::string>& arguments, Fd control,
                        const Session& session, bool local, std::span<const int> cores);

// For tests that simulate processes: called instead of SpawnRank's fork and exec. Null: none.
using RankStarter = Result<pid_t> (*)(Fd control, const Session& session, bool local);
void SetRankStarter(RankStarter starter);

// Call in the child: reads the handle's content. Errors: kUsage (not a handle), kCorrupt.
Result<Inheritance> ReadHandle(const std::string& handle);

// Returns true if the child has ended and is reaped; `how` then has the cause, a text to follow
// "rank 2 was lost: ".
bool ReapChild(pid_t pid, std::string* how);
// Whether a thread of a local process runs, waits for a core, or waits in the kernel (state D: a
// page from a disk, a kernel lock), and the process is not ending.
bool CouldRun(pid_t pid);
// Whether a local process is only ending, for example killed or dumping core. The process's
// connections stay open until each thread, perhaps of the lowest priority, has run once more, and
// the kernel has freed its memory.
bool IsExiting(pid_t pid);

}  // namespace weft::cluster
