// What this host says of itself to the others of its cluster.
#pragma once

#include <string>

#include "fleet/discovery.h"

namespace weft::cli {

// port: of its worker; 0: none.
fleet::SelfFacts OwnFacts(uint16_t port);

}  // namespace weft::cli
