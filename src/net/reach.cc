#include "net/reach.h"

#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "net/addresses.h"

namespace weft::net {
namespace {

constexpr uint16_t kDiscardPort = 9;

struct Knock {
    Fd fd;  // of a connection that is not decided
    Reach reach = Reach::kNone;
};

Knock Begin(const std::string& host) {
    sockaddr_storage address{};
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&address);
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address);
    socklen_t length = sizeof *v4;
    if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(kDiscardPort);
    } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(kDiscardPort);
        length = sizeof *v6;
    } else {
        return {};
    }
    Knock knock{Fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
    knock.reach = Reach::kSilent;
    if (!knock.fd.valid()) return knock;
    const int on = 1;
    const bool is_v4 = address.ss_family == AF_INET;
    ::setsockopt(knock.fd.get(), is_v4 ? SOL_IP : SOL_IPV6, is_v4 ? IP_RECVERR : IPV6_RECVERR, &on,
                 sizeof on);
    const bool open = ::connect(knock.fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0;
    if (!open && errno == EINPROGRESS) return knock;
    return {Fd(), open || errno == ECONNREFUSED ? Reach::kAnswers : Reach::kNone};
}

// Whether a firewall of the other host refused the connection (firewalld's REJECT). connect(2) then
// has the same error as for an address that no device has.
bool IsRefusal(int fd) {
    alignas(cmsghdr) char control[512];
    char bytes[256];
    iovec piece{bytes, sizeof bytes};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return false;
    for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
        const bool v4 = at->cmsg_level == SOL_IP && at->cmsg_type == IP_RECVERR;
        const bool v6 = at->cmsg_level == SOL_IPV6 && at->cmsg_type == IPV6_RECVERR;
        if (!v4 && !v6) continue;
        sock_extended_err error;
        std::memcpy(&error, CMSG_DATA(at), sizeof error);
        if (error.ee_origin == SO_EE_ORIGIN_ICMP && error.ee_type == ICMP_DEST_UNREACH) {
            return error.ee_code != ICMP_HOST_UNREACH && error.ee_code != ICMP_NET_UNREACH;
        }
        if (error.ee_origin == SO_EE_ORIGIN_ICMP6 && error.ee_type == ICMP6_DST_UNREACH) {
            return error.ee_code != ICMP6_DST_UNREACH_ADDR &&
                   error.ee_code != ICMP6_DST_UNREACH_NOROUTE;
        }
    }
    return false;
}

Reach Outcome(int fd) {
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return Reach::kSilent;
    if (error == ETIMEDOUT) return Reach::kSilent;
    return error == 0 || error == ECONNREFUSED || IsRefusal(fd) ? Reach::kAnswers : Reach::kNone;
}

// A silent address outside of this host's networks: the cable or the address that led there is
// missing, and the packets use the default route.
void DropOffNetwork(std::span<const std::string> hosts, std::vector<Knock>& knocks) {
    const auto own = ListHostAddresses();
    for (size_t i = 0; i < knocks.size(); ++i) {
        if (knocks[i].reach != Reach::kSilent || !own.ok()) continue;
        const HostAddress there{hosts[i], 0, ""};
        if (!CommonNetwork({&there, 1}, *own)) knocks[i].reach = Reach::kNone;
    }
}

}  // namespace

std::vector<Reach> KnockAt(std::span<const std::string> hosts, const Deadline& deadline) {
    std::vector<Knock> knocks;
    for (const std::string& host : hosts) knocks.push_back(Begin(host));
    std::vector<pollfd> watched(knocks.size());
    const auto goes_on = [](const Knock& knock) { return knock.fd.valid(); };
    while (std::ranges::any_of(knocks, goes_on) && !deadline.expired()) {
        for (size_t i = 0; i < knocks.size(); ++i) watched[i] = {knocks[i].fd.get(), POLLOUT, 0};
        if (::poll(watched.data(), watched.size(), static_cast<int>(deadline.left_ms())) < 0) {
            if (errno == EINTR) continue;
            break;
        }
        for (size_t i = 0; i < knocks.size(); ++i) {
            if (watched[i].revents == 0) continue;
            knocks[i].reach = Outcome(knocks[i].fd.get());
            knocks[i].fd.Reset();
        }
    }
    DropOffNetwork(hosts, knocks);
    std::vector<Reach> found;
    for (const Knock& knock : knocks) found.push_back(knock.reach);
    return found;
}

}  // namespace weft::net
