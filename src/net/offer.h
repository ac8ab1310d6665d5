// Messages between ranks before they are linked: offers (over control connections), and greetings
// (the first bytes in both directions of a data connection). Both are hostile input until checked.
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
#include "net/record.h"
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
    bool hidden = false;  // `to` can't dial `from`; if `to` can be dialed, `from` dials
    Encryption encryption = Encryption::kBetweenHosts;
    Token token{};          // token that `to` must present
    LinkSecret secret{};    // for the keys of the link; never sent over a data connection
    std::string boot_id;    // boot id of the host
    std::string network;    // id of this process's network namespace
    std::string unix_name;  // "": none
    std::string tcp_host;   // "": none
    uint16_t tcp_port = 0;
    std::vector<TcpWay> tcp_more;  // further addresses, tried in this order
    std::optional<VerbsAddress> verbs;
    std::string verbs_why;  // why `verbs` is missing; "": not requested, or no device
    std::string mpi_job;    // MpiLibrary::job_id(); "": not reachable over MPI
    int mpi_rank = 0;       // rank in MPI_COMM_WORLD of that job
};

std::string EncodeOffer(const Offer& offer);
// Errors: kCorrupt.
Result<Offer> DecodeOffer(std::string_view bytes);
// Identities of the host and of the process's network namespace; "": unknown.
std::string BootId();
std::string NetworkNamespace();
// Both identities combined: processes with the same KernelId share the loopback interface. "":
// unknown. (A sandbox may hide the boot id, and its network namespaces have the same numbers on
// every host.)
std::string KernelId(const std::string& boot_id, const std::string& network);
// Whether two ranks have the same options for their link. name: of the other rank. Errors: kUsage.
Status CheckSameOptions(const Offer& mine, const Offer& theirs, const std::string& name);
// Whether a tcp link between two ranks is encrypted. The offers must agree on `encryption`.
bool IsEncrypted(const Offer& mine, const Offer& theirs);
// The transport between two ranks; both ranks get the same result. Errors: kUsage (the ranks
// request different transports, or one that cannot link them), kNotFound (verbs without a device).
Result<Transport> ChooseTransport(const Offer& mine, const Offer& theirs);
// Why verbs cannot link two ranks; "": it can, or neither rank has a device.
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
