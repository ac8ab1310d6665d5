#include "net/path_mtu.h"

#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/deadline.h"
#include "net/socket.h"

namespace weft::net {
namespace {

constexpr int kSmall = 576;  // every path carries such packets
// Common link sizes: tunnels, IPv6's least, VPNs, PPPoE, Ethernet, some jumbo frames.
constexpr std::array kSizes = {1280, 1400, 1420, 1450, 1472, 1480, 1492, 1500, 2044, 4092, 8000};
constexpr int kTcpHeader = 20, kTimestamps = 12;
constexpr int64_t kLookMs = 5;

bool ReachesIpv4(const sockaddr* address) {
    if (address->sa_family == AF_INET) return true;
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    return IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) != 0;
}

// A connection that sends one packet.
class Probe {
  public:
    // size: of packets, with all headers; 0: the largest that both ends allow.
    Probe(const addrinfo& to, int size, std::span<const std::byte> first)
        : first_(first),
          ip_header_(ReachesIpv4(to.ai_addr) ? 20 : 40),
          fd_(::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
        const int on = 1, segment = size - ip_header_ - kTcpHeader;
        if (size > 0) {
            ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
        }
        ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        const bool begun = fd_.valid() && (::connect(fd_.get(), to.ai_addr, to.ai_addrlen) == 0 ||
                                           errno == EINPROGRESS);
        if (!begun) state_ = State::kFailed;
    }

    // Advances the probe. Returns false if the probe has ended.
    bool Step() {
        if (state_ == State::kConnects) Connected();
        if (state_ == State::kSent) Acknowledged();
        return state_ == State::kConnects || state_ == State::kSent;
    }
    bool connected() const { return state_ == State::kSent || state_ == State::kArrived; }
    bool arrived() const { return state_ == State::kArrived; }
    int packet() const { return packet_; }  // bytes, once it was sent
    int fd() const { return fd_.get(); }

  private:
    enum class State { kConnects, kSent, kArrived, kFailed };

    void Connected() {
        pollfd ready{fd_.get(), POLLOUT, 0};
        if (::poll(&ready, 1, 0) <= 0) return;
        tcp_info info{};
        socklen_t size = sizeof info;
        int error = 0;
        socklen_t error_size = sizeof error;
        ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &error_size);
        if (error != 0 || ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
            state_ = State::kFailed;
            return;
        }
        const bool stamps = (info.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0;
        std::vector<std::byte> bytes(info.tcpi_snd_mss);
        std::ranges::copy(first_.first(std::min(first_.size(), bytes.size())), bytes.begin());
        packet_ =
            static_cast<int>(bytes.size()) + ip_header_ + kTcpHeader + (stamps ? kTimestamps : 0);
        const bool sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                          static_cast<ssize_t>(bytes.size());
        state_ = sent ? State::kSent : State::kFailed;
    }

    // The packet arrived if it was acknowledged, or if the listener reset the connection because of
    // it.
    void Acknowledged() {
        int error = 0, queued = 0;
        socklen_t size = sizeof error;
        ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
        const bool reset = error == ECONNRESET || error == EPIPE;
        if (reset || (error == 0 && ::ioctl(fd_.get(), SIOCOUTQ, &queued) == 0 && queued == 0)) {
            state_ = State::kArrived;
        } else if (error != 0) {
            state_ = State::kFailed;
        }
    }

    std::span<const std::byte> first_;
    int ip_header_;
    Fd fd_;
    State state_ = State::kConnects;
    int packet_ = 0;
};

void Await(std::vector<Probe>& probes, int64_t timeout_ms) {
    const Deadline deadline = Deadline::In(timeout_ms);
    while (true) {
        bool waits = false;
        for (Probe& probe : probes) waits = probe.Step() || waits;
        if (!waits || deadline.expired()) return;
        ::poll(nullptr, 0, kLookMs);
    }
}

// The interface with the socket's own address, and its MTU.
void FindDevice(int fd, PathMtu& path) {
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) return;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return;
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != own.ss_family) continue;
        const bool v4 = own.ss_family == AF_INET;
        const auto* mine4 = reinterpret_cast<const sockaddr_in*>(&own);
        const auto* mine6 = reinterpret_cast<const sockaddr_in6*>(&own);
        const auto* its4 = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
        const auto* its6 = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
        const bool same =
            v4 ? mine4->sin_addr.s_addr == its4->sin_addr.s_addr
               : std::memcmp(&mine6->sin6_addr, &its6->sin6_addr, sizeof(in6_addr)) == 0 &&
                     mine6->sin6_scope_id == its6->sin6_scope_id;
        if (same) path.device = one->ifa_name;
    }
    ::freeifaddrs(list);
    ifreq asked{};
    if (path.device.empty() || path.device.size() >= sizeof asked.ifr_name) return;
    std::memcpy(asked.ifr_name, path.device.c_str(), path.device.size() + 1);
    if (::ioctl(fd, SIOCGIFMTU, &asked) == 0) path.device_mtu = asked.ifr_mtu;
}

std::optional<PathMtu> ProbeAddress(const addrinfo& to, std::span<const std::byte> first,
                                    int64_t timeout_ms) {
    std::vector<Probe> probes;
    probes.emplace_back(to, kSmall, first);
    probes.emplace_back(to, 0, first);
    Await(probes, timeout_ms);
    if (!probes[0].arrived() || !probes[1].connected()) return std::nullopt;
    PathMtu path;
    FindDevice(probes[1].fd(), path);
    path.largest = probes[1].packet();
    path.passed = probes[1].arrived() ? path.largest : probes[0].packet();
    if (path.whole()) return path;
    std::vector<Probe> sizes;
    for (const int size : kSizes) {
        if (size < path.largest) sizes.emplace_back(to, size, first);
    }
    sizes.emplace_back(to, 0, first);  // again: a single packet may be lost by chance
    Await(sizes, timeout_ms);
    for (const Probe& each : sizes) {
        if (each.arrived()) path.passed = std::max(path.passed, each.packet());
    }
    return path;
}

}  // namespace

std::optional<PathMtu> ProbePathMtu(const std::string& host, uint16_t port,
                                    std::span<const std::byte> first, int64_t timeout_ms) {
    const auto found = FindAddresses(host, port, Deadline::In(timeout_ms));
    for (const addrinfo* one = found.ok() ? found->get() : nullptr; one != nullptr;
         one = one->ai_next) {
        const auto path = ProbeAddress(*one, first, timeout_ms);
        if (path.has_value()) return path;
    }
    return std::nullopt;
}

}  // namespace weft::net
