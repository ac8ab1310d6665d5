#include "net/reach.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/fd.h"

namespace weft::net {
namespace {

constexpr uint16_t kDiscardPort = 9;

}  // namespace

bool AnswersAt(const std::string& host, const Deadline& deadline) {
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
        return false;
    }
    const Fd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return false;
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) return true;
    if (errno != EINPROGRESS) return errno == ECONNREFUSED;
    pollfd entry{fd.get(), POLLOUT, 0};
    int ready = 0;
    do {
        ready = ::poll(&entry, 1, static_cast<int>(deadline.left_ms()));
    } while (ready < 0 && errno == EINTR);
    int error = 0;
    socklen_t size = sizeof error;
    if (ready <= 0 || ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return false;
    return error == 0 || error == ECONNREFUSED;
}

}  // namespace weft::net
