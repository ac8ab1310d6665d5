// The texts of options about links: transports and ports.
#include <fmt/ranges.h>

#include <charconv>

#include "net/fabric.h"

namespace weft::net {
namespace {

constexpr Transport kTransports[] = {Transport::kAuto, Transport::kShm, Transport::kTcp,
                                     Transport::kVerbs, Transport::kMpi};

}  // namespace

const char* TransportName(Transport transport) {
    switch (transport) {
        case Transport::kAuto: return "auto";
        case Transport::kShm: return "shm";
        case Transport::kTcp: return "tcp";
        case Transport::kVerbs: return "verbs";
        case Transport::kMpi: return "mpi";
    }
    return "?";
}

std::vector<std::string> TransportNames() {
    std::vector<std::string> names;
    for (Transport transport : kTransports) names.emplace_back(TransportName(transport));
    return names;
}

Result<Transport> ParseTransport(std::string_view name) {
    for (Transport transport : kTransports) {
        if (name == TransportName(transport)) return transport;
    }
    return MakeError(ErrorCode::kUsage, "--transport {}: expected one of {}", name,
                     fmt::join(TransportNames(), ", "));
}

Result<PortRange> ParsePorts(std::string_view text) {
    PortRange ports;
    if (text.empty()) return ports;
    const size_t dash = text.find('-');
    const auto parse = [](std::string_view digits, uint16_t& port) {
        const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
        return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() && port > 0;
    };
    const bool good = parse(text.substr(0, dash), ports.first) &&
                      parse(dash == text.npos ? text : text.substr(dash + 1), ports.last);
    if (good && ports.first <= ports.last) return ports;
    return MakeError(ErrorCode::kUsage, "--data-ports {}: expected ports such as 7001-7010", text);
}

}  // namespace weft::net
