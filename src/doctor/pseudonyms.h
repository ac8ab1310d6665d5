// Pseudonyms replace the names and addresses of a host in a saved snapshot, so that it can be shown
// to strangers. The same name has the same pseudonym in every snapshot.
//
// Hosts       "host-3fa2", of 16 bits of a hash
// devices     interfaces and RDMA devices: names that the kernel and systemd give ("enp1s0f0np0",
//             "mlx5_0") stay. Other names become "net-3fa2"; a prefix that checks use ("br-",
//             "veth")
//             stays instead of "net-". Names of chains, zones, users and units are replaced, too.
// IPv4        private, shared, link-local and loopback addresses stay (RFC 1918, 6598, 3927);
//             others become addresses of 198.18.0.0/15 (RFC 2544): addresses that share a prefix
//             of 15 bits or more still share it. The first 15 bits are lost, so the real address
//             can't be recovered.
// other       hardware addresses and GUIDs are counted: 0x1, 0x2, ...
//
// A name can't be recovered from 16 bits of a hash; one in 65,536 wrong guesses matches by
// accident.
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
    // real: names stay unchanged (`--real-names`).
    explicit Pseudonyms(bool real = false) : real_(real) {}

    std::string Host(std::string_view name);
    std::string Interface(std::string_view name);
    std::string Number(std::string_view address);  // "0x1"
    // For files of a folder in which the last file has precedence: pseudonyms that keep their
    // order. First pass all names to OrderFiles. Then OrderedFile returns a name's pseudonym, such
    // as "0002-file.conf"; nullopt: OrderFiles did not receive the name.
    void OrderFiles(const std::set<std::string>& files);
    std::optional<std::string> OrderedFile(std::string_view name) const;
    Ipv4 Address(const Ipv4& address) const;
    // "10.0.0.1", "10.0.0.0/24" or "default"; "": not an address.
    std::string AddressText(std::string_view text) const;

    bool real() const { return real_; }
    // The pseudonyms given so far, by "KIND NAME".
    const std::map<std::string, std::string>& given() const { return given_; }

  private:
    std::string Pseudonym(const char* kind, std::string_view prefix, std::string_view name);

    bool real_;
    std::map<std::string, std::string> given_;
    std::map<std::string, std::string, std::less<>> ordered_;
    std::map<std::string, size_t, std::less<>> numbers_;
    std::set<std::string> taken_;
};

// Whether the kernel or systemd gives such names to interfaces or RDMA devices.
bool IsUsualDeviceName(std::string_view name);

}  // namespace weft::doctor
