// Tests whether hosts are up and reachable at their addresses, even if no program listens there.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"

namespace weft::net {

// kAnswers: the host, or its firewall, answers. kSilent: no answer by the deadline, from an address
// in a network of this host; a firewall may drop the packets. kNone: this host has no route to the
// address, or no device with the address is on the cable.
enum class Reach { kAnswers, kSilent, kNone };

// Connects to a port of each host on which usually nothing listens: a refusal also shows that the
// host answers. hosts: numeric, without scope. The kernel needs three seconds to detect that no
// device has an address, so an earlier deadline gives kSilent.
std::vector<Reach> KnockAt(std::span<const std::string> hosts, const Deadline& deadline);

}  // namespace weft::net
