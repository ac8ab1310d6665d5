// Allows several threads to use the links of a Fabric at once, in addition to the contract of
// link.h.
#pragma once

#include "net/link.h"

namespace weft::net {

// After this call, any thread may use any link of `fabric`, but two threads must use different
// flags and different parts of the windows. Call it before the second thread begins. Over tcp, a
// link then accepts one Put at a time, one thread at a time reads from it, and hints (Link::Expect)
// are ignored. Over verbs, a thread locks the link during each put and each check. Shared memory
// needs no change. mpi is not supported yet.
void ShareAmongThreads(Fabric& fabric);

}  // namespace weft::net
