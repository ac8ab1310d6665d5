// Addresses that two hosts share.
#include <fmt/format.h>

#include <map>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/network.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

void AcrossAddress(Hosts hosts, Findings& out) {
    std::map<uint32_t, std::string> owners;
    size_t count = 0;
    for (const auto& host : hosts) {
        std::map<uint32_t, std::string> own;
        for (const NetDevice& device : NetDevices(*host)) {
            // Bridges of containers have the same address on every host, and that is well.
            if (IsOfContainers(device.name)) continue;
            for (const Ipv4& address : device.addresses) {
                if (address.IsLoopback()) continue;
                own[address.bits] = host->host() + " " + device.name;
                ++count;
                const auto taken = owners.find(address.bits);
                if (taken == owners.end() || out.Count() > 16) continue;
                out.Fail(fmt::format("{} is on {} and on {} {}", address.Text(), taken->second,
                                     host->host(), device.name),
                         "an address of its own on each host",
                         "whoever answers ARP first gets the packets: connections fail or stall at "
                         "random",
                         fmt::format("sudo ip addr del {}/{} dev {}, then give it an address "
                                     "that no other host has",
                                     address.Text(), address.prefix, ShellWord(device.name)));
            }
        }
        owners.merge(own);
    }
    if (count > 0 && out.empty()) out.Ok("no address is on two hosts");
}

}  // namespace

const Check kAcrossAddress = {
    .name = "across-address",
    .what = "No IPv4 address is on two hosts.",
    .reads = "ip -j addr",
    .why = "Cloned machines keep their addresses; connections then fail at random.",
    .across = AcrossAddress,
};

}  // namespace weft::doctor::checks
