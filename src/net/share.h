// Links that several threads use at once: part of link.h's contract, for those who need it.
#pragma once

#include "net/link.h"

namespace weft::net {

// From now on any thread may use any link of `fabric`, each of them other flags and other parts of
// the windows than the rest. Call before the second thread begins. Where data come over sockets
// (tcp), a link then takes one Put at a time, one thread reads it at a time, and hints (Expect) are
// not taken; over verbs one thread has the link for each put and each look; in shared memory
// nothing changes. (Not so far: mpi.)
void ShareAmongThreads(Fabric& fabric);

}  // namespace weft::net
