// Pseudonyms: what stands in a saved snapshot for the names and addresses of a host, so that it can
// be shown to strangers. The same name gives the same pseudonym in every snapshot.
//
// Hosts       "host-3fa2", of 16 bits of a hash
// devices     interfaces and RDMA devices: names that the kernel and systemd give ("enp1s0f0np0",
//             "mlx5_0") stay; others become "net-3fa2", with the beginning that the checks look at
//             ("br-", "veth"). Names of chains, zones, users and units become pseudonyms likewise.
// IPv4        private, shared, link-local and loopback addresses stay (RFC 1918, 6598, 3927);
//             others become addresses of 198.18.0.0/15 (RFC 2544): addresses that share a prefix of
//             15 bits or more share it still. 15 bits are lost, so that nobody can tell the real
//             one.
// other       hardware addresses and GUIDs are counted: 0x1, 0x2, ...
// Nobody reads a name out of 16 bits of a hash; a guess is right by accident once in 65,536 times.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "doctor/network.h"

namespace weft::doctor {

class Pseudonyms {
  public:
    // real: everything stands for itself (`--real-names`).
    explicit Pseudonyms(bool real = false) : real_(real) {}

    std::string Host(std::string_view name);
    std::string Interface(std::string_view name);
    std::string Number(std::string_view address);  // "0x1"
    // Files of which the last one counts keep their order. First all of them, by their names;
    // OrderedFile then gives "0002-file.conf"; none for one that was not among them.
    void OrderFiles(const std::set<std::string>& files);
    std::optional<std::string> OrderedFile(std::string_view name) const;
    std::string Address(const Ipv4& address) const;
    // "10.0.0.1", "10.0.0.0/24" or "default"; "" where it is none.
    std::string AddressText(std::string_view text) const;

    bool real() const { return real_; }
    // Pseudonyms given so far, by "KIND NAME".
    const std::map<std::string, std::string>& given() const { return given_; }

  private:
    std::string Pseudonym(const char* kind, std::string_view prefix, std::string_view name);

    bool real_;
    std::map<std::string, std::string> given_;
    std::map<std::string, std::string, std::less<>> ordered_;
    std::map<std::string, size_t, std::less<>> numbers_;
    std::set<std::string> taken_;
};

// Whether the kernel or systemd may have given an interface or RDMA device this name.
bool IsUsualDeviceName(std::string_view name);

}  // namespace weft::doctor
