// Tests whether a host is up and reachable at an address, even if no program listens there.
#pragma once

#include <string>

#include "base/deadline.h"

namespace weft::net {

// Connects to a port where usually nothing listens: a refusal is an answer of the host, too. host:
// numeric, without scope. Returns false without an answer by the deadline, a route, or such an
// address.
bool AnswersAt(const std::string& host, const Deadline& deadline);

}  // namespace weft::net
