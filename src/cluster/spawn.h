// Starting a rank as a child process of this program, and handing it its end of a control
// connection. Secrets travel through a pipe, never on the command line or in the environment.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "cluster/handshake.h"
#include "cluster/socket.h"

namespace weft::cluster {

// What a child finds behind the word that follows --handle: "local:5,6".
struct Inheritance {
    Fd control;
    Session session;
    bool local = false;  // rank 0 is the parent (else the parent is a listener)
};

// Starts /proc/self/exe with `arguments` and "--handle HANDLE". The child holds SIGINT, SIGTERM and
// SIGUSR1 (HoldStops) and ignores them once it lets them through, reads /dev/null, prints to
// standard error only, inherits no other descriptor, runs on `cores`, and is killed when the
// calling thread ends. Errors: kIo.
Result<pid_t> SpawnRank(const std::vector<std::string>& arguments, Fd control,
                        const Session& session, bool local, std::span<const int> cores);

// In the child. Errors: kUsage (not a handle), kCorrupt.
Result<Inheritance> ReadHandle(const std::string& handle);

// Whether the child has ended; then *how says it in words that follow "rank 2 was lost: ".
// Reaps it.
bool ReapChild(pid_t pid, std::string* how);
// Whether a thread of a process of this machine runs, or waits for a core, or for what the kernel
// does meanwhile (state D: a page from a disk, a lock of the kernel's), and not in order to end.
bool CouldRun(pid_t pid);
// Whether all that a process of this machine still does is end: it was killed, say, or dumps core,
// but its connections stay open until each of its threads has run once more, which may have the
// lowest priority, and the kernel has freed its memory.
bool IsDying(pid_t pid);

}  // namespace weft::cluster
