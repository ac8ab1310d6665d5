// What `ufw status verbose` tells of connections that peers open to this host over TCP and IPv4,
// as rules of a packet filter.
#pragma once

#include <string>
#include <string_view>

#include "doctor/packet_filter.h"

namespace weft::doctor {

struct Ufw {
    bool active = false;
    FilterChain input;  // its rules in ufw's order; its policy drops unless ufw says otherwise
};

Ufw ParseUfw(std::string_view status);
// In ufw's own form; what it does not know of a rule (a destination, a port of the sender, an
// application) becomes the word "Other". Reading it again gives the same rules.
std::string WriteUfw(const Ufw& ufw, Names& names);

}  // namespace weft::doctor
