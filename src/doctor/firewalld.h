// Zones of firewalld, out of `firewall-cmd --get-active-zones` and `--list-all-zones`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/names.h"
#include "doctor/packet_filter.h"

namespace weft::doctor {

struct FirewallZone {
    std::string name;
    bool is_default = false;
    bool described = false;  // its target and all its ports were told
    bool accepts = false;    // its target is ACCEPT
    std::vector<std::string> interfaces;
    std::vector<Ipv4> sources;             // of packets that belong to the zone
    std::vector<FilterRule::Ports> ports;  // of TCP
    // Whether a peer reaches a high TCP port of this host through it.
    Passage Opens() const;
};

std::vector<FirewallZone> ParseZones(std::string_view text);
std::string WriteZones(const std::vector<FirewallZone>& zones, Names& names);
// What the second list tells of zones that the first one names, added to it.
void AddZones(std::vector<FirewallZone>& zones, std::vector<FirewallZone> more);

}  // namespace weft::doctor
