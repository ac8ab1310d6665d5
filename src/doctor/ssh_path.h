// Why ssh to a host hangs: whether the way there loses large packets without a word. Small packets
// then pass, so that the host answers and the connection opens, and the first large packet, of the
// key exchange or of the archive, never arrives.
#pragma once

#include <optional>
#include <string>

namespace weft::doctor {

struct LostPackets {
    std::string address;  // where ssh connects to
    std::string device;   // by which interface of this machine; "" where it is not known
    int mtu = 0;          // packets of so many bytes are lost; those of kSmallPacket arrive
};

// name: as ssh takes it (SshName); its configuration tells the address. None where whole packets
// arrive, where nothing does, or where `ping` or the address is not to be had. Takes some seconds
// at most.
std::optional<LostPackets> FindLostPackets(const std::string& name);

}  // namespace weft::doctor
