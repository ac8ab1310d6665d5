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
    std::vector<std::string> interfaces;
    std::vector<Ipv4> sources;  // of packets that belong to the zone
    bool unknown_sources =
        false;  // others belong to it, too: sets of addresses, hardware addresses

    bool described = false;                // what follows was told
    bool accepts = false;                  // its target is ACCEPT
    bool accepts_tcp = false;              // by its protocols
    bool unknown_services = false;         // that firewalld is not delivered with
    std::vector<FilterRule::Ports> ports;  // of TCP
    std::vector<FilterRule> rules;         // rich ones, about TCP over IPv4

    // Whether a peer that comes in by the device (see PassageBy) reaches a high TCP port through
    // it.
    Passage Opens(const NetDevice* device) const;
};

std::vector<FirewallZone> ParseZones(std::string_view text);
std::string WriteZones(const std::vector<FirewallZone>& zones, Names& names);
// What the second list tells of zones that the first one names, added to it.
void AddZones(std::vector<FirewallZone>& zones, std::vector<FirewallZone> more);

}  // namespace weft::doctor
