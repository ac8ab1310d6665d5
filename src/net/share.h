// Links that several threads use at once: an extension of link.h's contract.
#pragma once

#include "net/link.h"

namespace weft::net {

// From now on any thread may use any link of `fabric`; threads use disjoint flags and parts of the
// windows. Call it before the second thread begins. Over sockets (tcp), a link then accepts one Put
// at a time, one thread at a time reads from it, and hints (Expect) are ignored. Over verbs, one
// thread holds the link for each put and each check. Shared memory needs no change. mpi is not
// supported yet.
void ShareAmongThreads(Fabric& fabric);

}  // namespace weft::net
