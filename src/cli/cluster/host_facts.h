// The facts that this host announces to its cluster.
#pragma once

#include <string>

#include "fleet/discovery.h"

namespace weft::cli {

// port: the worker's port; 0: no worker.
fleet::SelfFacts OwnFacts(uint16_t port);

}  // namespace weft::cli
