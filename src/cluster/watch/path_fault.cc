#include "cluster/watch/path_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/on_threads.h"
#include "cluster/frame.h"
#include "cluster/socket.h"
#include "net/path_mtu.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostPaths = 64;
constexpr size_t kSpare = 64;  // for a frame's header

bool IsOfLinks(ErrorCode code) {
    return code == ErrorCode::kPeerLost || code == ErrorCode::kTimeout || code == ErrorCode::kIo;
}

}  // namespace

std::string PathFaultText(const net::PathMtu& path, const std::string& way,
                          const std::string& place) {
    const std::string device = path.device.empty() ? "the interface" : path.device;
    const std::string cure =
        path.passed < net::kLeastMtu
            ? fmt::format("Raise it to {} or more: an interface with less has no IPv6",
                          net::kLeastMtu)
            : fmt::format(
                  "On both hosts: sudo ip link set dev {} mtu {} (there by its own name), "
                  "or raise the MTU of the device between them",
                  device, path.passed);
    return fmt::format(
        "The path {} silently drops large packets: {} bytes arrive, {} do not. MTU of {} {}: {}; "
        "the other end takes {}{}. A device between the hosts (a switch without jumbo frames, a "
        "tunnel) has a smaller MTU. {}",
        way, path.passed, path.largest, device, place, path.device_mtu, path.largest,
        path.largest < path.device_mtu ? "" : " or more", cure);
}

std::string PathFaultTo(const std::string& name, const std::string& address) {
    const auto to = ParseAddress(address);
    if (!to.ok()) return "";
    // An incomplete frame, so the worker logs nothing.
    Bytes frame;
    AppendFrame(frame, FrameType::kHello, Bytes(kMostBeforeAuth - kSpare));
    const auto path = net::ProbePathMtu(to->host, to->port, frame);
    if (!path.has_value() || path->whole()) return "";
    const std::string way = name == address ? name : fmt::format("{} ({})", name, address);
    return PathFaultText(*path, "to " + way, "here");
}

Error WithPathFaults(Error error, const ClusterOptions& options) {
    if (!IsOfLinks(error.code)) return error;
    std::vector<std::pair<std::string, std::string>> paths;  // names, addresses
    for (size_t i = 0; i < std::min(options.hosts.size(), kMostPaths); ++i) {
        const bool named = i < options.host_names.size();
        const std::string name = named ? options.host_names[i] : options.hosts[i];
        // Probes every cable to the host, if known.
        std::vector<std::string> addresses = {options.hosts[i]};
        if (named && options.addresses_now) {
            for (std::string& one : options.addresses_now(name)) {
                if (one != options.hosts[i]) addresses.push_back(std::move(one));
            }
        }
        for (std::string& address : addresses) paths.emplace_back(name, std::move(address));
    }
    std::vector<std::string> faults(paths.size());
    [[maybe_unused]] const Status done = OnThreads(paths.size(), paths.size(), [&](size_t i) {
        faults[i] = PathFaultTo(paths[i].first, paths[i].second);
        return Status();
    });
    for (const std::string& fault : faults) {
        if (!fault.empty()) AddSentence(error.message, fault);
    }
    return error;
}

bool IsOfDataLink(const Error& error) {
    return IsOfLinks(error.code) && error.message.find("data link") != std::string::npos;
}

void AddSentence(std::string& text, const std::string& sentence) {
    while (text.ends_with('.')) text.pop_back();
    text += ". " + sentence;
}

}  // namespace weft::cluster
