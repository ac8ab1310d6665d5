// Tests whether ssh to a host hangs because the path silently loses large packets. Small packets
// pass, so the host answers and the connection opens, but the first large packet, of the key
// exchange or the archive, never arrives.
#pragma once

#include <optional>
#include <string>

namespace weft::doctor {

struct LostPackets {
    std::string address;  // address that ssh connects to
    std::string device;   // interface of this machine; "": unknown
    int mtu = 0;          // packets of this size are lost; those of kSmallPacket arrive
};

// name: as for ssh (SshName); ssh's configuration gives the address. nullopt: full-size packets
// arrive, no packet does, or there is no `ping` or address. Takes a few seconds at most.
std::optional<LostPackets> FindLostPackets(const std::string& name);

}  // namespace weft::doctor
