// What ranks say before they are linked: offers (over the control plane) and greetings (the first
// bytes of a data connection, both ways). Both are hostile until checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/fabric.h"
#include "net/verbs_device.h"

namespace weft::net {

using Token = std::array<uint8_t, 16>;
bool TokensEqual(const Token& a, const Token& b);  // in constant time

struct TcpWay {
    std::string host;
    uint16_t port = 0;
    bool operator==(const TcpWay&) const = default;
};
inline constexpr size_t kMostTcpWays = 16;

struct Offer {
    int from = 0;
    int to = 0;
    int size = 0;
    uint64_t epoch = 0;
    uint64_t window_bytes = 0;
    Transport transport = Transport::kAuto;
    bool checksum = false;
    bool hidden = false;  // `to` can't dial `from`: where it can be dialled itself, `from` dials
    Token token{};        // what `to` must show
    std::string boot_id;  // of the host, and of the network as this process sees it
    std::string network;
    std::string unix_name;  // "": none
    std::string tcp_host;   // "": none
    uint16_t tcp_port = 0;
    std::vector<TcpWay> tcp_more;  // to be tried in this order where that one leads nowhere
    std::optional<VerbsAddress> verbs;
    std::string verbs_why;  // why there is none; "": not asked for, or no device
    std::string mpi_job;    // "": cannot be reached over MPI
    int mpi_rank = 0;       // in that job's MPI_COMM_WORLD
};

std::string EncodeOffer(const Offer& offer);
// Errors: kCorrupt.
Result<Offer> DecodeOffer(std::string_view bytes);
// Who this process is, for "are we on one host?"; empty strings where the system does not say.
std::string BootId();
std::string NetworkNamespace();
// Both in one: where two processes have the same, one's loopback is the other's. "": not known (a
// sandbox may hide the boot id, and its namespaces are numbered alike on every host).
std::string KernelId(const std::string& boot_id, const std::string& network);
// What joins two ranks, the same answer on both. Errors: kUsage, kNotFound (verbs without a
// device).
Result<Transport> ChooseTransport(const Offer& mine, const Offer& theirs);
// "": verbs can join them, or no side has a device; else why verbs can't.
std::string WhyNotVerbs(const Offer& mine, const Offer& theirs);

struct Greeting {
    uint32_t magic = 0x57464831;
    uint32_t version = 1;
    int32_t from = 0;
    int32_t to = 0;
    uint64_t epoch = 0;
    Token token{};
};
static_assert(sizeof(Greeting) == 40);

}  // namespace weft::net
