#include "doctor/pseudonyms.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr int kKeptBits = 17;                 // bits of an address that fit 198.18.0.0/15
constexpr uint32_t kPseudonyms = 0xc6120000;  // 198.18.0.0

// Private, shared, link-local, loopback, this, pseudonymous and multicast networks.
constexpr std::string_view kSharedNetworks =
    "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 169.254.0.0/16 127.0.0.0/8 0.0.0.0/8 "
    "198.18.0.0/15 224.0.0.0/3";

// FNV-1a with a final mix. A pseudonym is not a secret; it only must not contain the name.
uint64_t Hash(std::string_view text, uint64_t seed = 0) {
    uint64_t hash = 0xcbf29ce484222325 ^ seed;
    for (const char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3;
    }
    hash ^= hash >> 33;
    hash *= 0xff51afd7ed558ccd;
    return hash ^ hash >> 29;
}

// The part after "en", "ib", ... in systemd's names (systemd.net-naming-scheme(7)): a letter for
// the kind of each number, "p1s0f0np0". 'x' is excluded, because a hardware address follows it.
bool IsPlace(std::string_view text) {
    constexpr size_t kMostGroups = 8;
    size_t groups = 0;
    for (size_t at = 0; at < text.size(); ++groups) {
        const size_t first = std::min(text.find_first_of("0123456789", at), text.size());
        const size_t end = std::min(text.find_first_not_of("0123456789", first), text.size());
        const bool known =
            IsOneOf(text.substr(at, first - at),
                    groups == 0 ? "P p s o b v i d" : "p s f n d u c i v r b np npf pf vf sf");
        if (!known || !AreDigits(text.substr(first, end - first), 5)) return false;
        at = end;
    }
    return groups > 0 && groups <= kMostGroups;
}

constexpr std::string_view kNumbered =
    "eth ib wlan usb thunderbolt bond team br docker virbr vnet tun tap wg dummy sit gre vlan "
    "vxlan "
    "rxe rxe_ siw mlx4_ mlx5_ mlx5_bond_ bnxt_re bnxt_re_bond irdma qedr hfi1_ cxgb4_ cxgb3_ lxcbr "
    "lxdbr podman cni macvlan efa_ ifb gretap ip6tnl ipvlan tailscale nebula";
constexpr std::string_view kPlaced = "en ib wl ww sl roce";
// Prefixes that checks use, in otherwise private names.
constexpr std::string_view kBeginnings =
    "docker br- virbr cni podman lxc veth thunderbolt rxe tailscale wg zt nebula";

// Whether the address is in one of these networks, so that it is not public.
bool IsHere(const Ipv4& address) {
    return std::ranges::any_of(Words(kSharedNetworks), [&](std::string_view network) {
        const auto range = ParseIpv4(network);
        return range->Shares({address.bits, range->prefix});
    });
}

}  // namespace

bool IsUsualDeviceName(std::string_view name) {
    if (name == "lo") return true;
    if (const size_t dot = name.find('.'); dot != std::string_view::npos) {  // a VLAN
        return AreDigits(name.substr(dot + 1), 5) && IsUsualDeviceName(name.substr(0, dot));
    }
    const size_t letters = name.find_last_not_of("0123456789") + 1;
    if (AreDigits(name.substr(letters), 4) && IsOneOf(name.substr(0, letters), kNumbered))
        return true;
    return std::ranges::any_of(Words(kPlaced), [&](std::string_view begin) {
        return name.starts_with(begin) && IsPlace(name.substr(begin.size()));
    });
}

std::string Pseudonyms::Pseudonym(const char* kind, std::string_view prefix,
                                  std::string_view name) {
    const bool made = name.starts_with(prefix) && name.size() == prefix.size() + 4 &&
                      name.find_first_not_of("0123456789abcdef", prefix.size()) == name.npos;
    if (made) return std::string(name);  // already a pseudonym
    const std::string key = fmt::format("{} {}", kind, name);
    if (const auto found = given_.find(key); found != given_.end()) return found->second;
    for (uint64_t seed = 0;; ++seed) {
        std::string next = fmt::format("{}{:04x}", prefix, Hash(name, seed) & 0xffff);
        if (seed < 65'536 && !taken_.insert(next).second) continue;
        return given_[key] = next;
    }
}

std::string Pseudonyms::Host(std::string_view name) {
    return real_ ? std::string(name) : Pseudonym("host", "host-", name);
}

std::string Pseudonyms::Interface(std::string_view name) {
    if ((real_ && Printable(name) == name) || IsUsualDeviceName(name)) return std::string(name);
    for (std::string_view begin : Words(kBeginnings)) {
        if (name.starts_with(begin)) return Pseudonym("interface", begin, name);
    }
    return Pseudonym("interface", name.starts_with("wl") ? "wlnet-" : "net-", name);
}

std::string Pseudonyms::Number(std::string_view address) {
    const auto found = numbers_.try_emplace(std::string(address), numbers_.size() + 1).first;
    return fmt::format("{:#x}", found->second);
}

void Pseudonyms::OrderFiles(const std::set<std::string>& files) {
    for (const std::string& name : files) {
        ordered_[name] = real_ && Printable(name) == name
                             ? name
                             : fmt::format("{:04}-file.conf", ordered_.size() + 1);
        if (ordered_[name] != name) given_["file " + name] = ordered_[name];
    }
}

std::optional<std::string> Pseudonyms::OrderedFile(std::string_view name) const {
    const auto found = ordered_.find(name);
    return found == ordered_.end() ? std::nullopt : std::optional(found->second);
}

Ipv4 Pseudonyms::Address(const Ipv4& address) const {
    if (real_ || IsHere(address)) return address;
    uint32_t low = 0;
    for (int bit = kKeptBits - 1; bit >= 0; --bit) {
        // the hash of the bits above decides whether a bit flips
        const uint32_t above = address.bits >> (bit + 1);
        const uint64_t turn = Hash(fmt::format("{} {}", bit, above)) & 1;
        low = low << 1 | ((address.bits >> bit & 1) ^ static_cast<uint32_t>(turn));
    }
    return {kPseudonyms | low, 32};
}

std::string Pseudonyms::AddressText(std::string_view text) const {
    if (text == "default") return "default";
    const auto address = ParseIpv4(text);
    if (!address) return "";
    if (!Contains(text, "/")) return Address(*address).Text();
    if (real_ || IsHere(*address)) return address->PrefixText();
    // A prefix of 0 or 1 bits covers at least half of all addresses.
    if (address->prefix <= 1) return Ipv4{address->network(), address->prefix}.PrefixText();
    const int prefix = std::max(address->prefix, 32 - kKeptBits);
    return Ipv4{Ipv4{Address(*address).bits, prefix}.network(), prefix}.PrefixText();
}

}  // namespace weft::doctor
