// A wire between two network namespaces that delays each packet by D +- J us (uniform), for kernels
// without netem. It has a TUN device at both ends and delays both directions.
//
//     slow_wire NAMESPACE_A NAMESPACE_B DELAY_US JITTER_US
//
// Creates the device `wire` in both, prints "ready", and carries packets until it is killed.
// SIGUSR1 toggles the delay, which is off at first. As root, it runs before other processes
// (SCHED_FIFO), like a kernel timer. Like netem, it may reorder packets within the jitter.
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/deadline.h"

namespace {

constexpr size_t kLongestPacket = 65'536;
constexpr size_t kMostPackets = 8192;  // further packets are dropped

// Signal handlers reach only globals.
volatile std::sig_atomic_t switched_on = 0;
void Switch(int) {
    switched_on = !switched_on;
}

[[noreturn]] void Fail(const std::string& what) {
    std::fprintf(stderr, "slow_wire: %s: %s\n", what.c_str(), std::strerror(errno));
    std::exit(1);
}

int OpenEnd(const std::string& name) {
    const int home = ::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (home < 0 || ::setns(home, CLONE_NEWNET) != 0) Fail("namespace " + name);
    ::close(home);
    const int fd = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ifreq request{};
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    std::strcpy(request.ifr_name, "wire");
    if (fd < 0 || ::ioctl(fd, TUNSETIFF, &request) != 0) Fail("a TUN device in " + name);
    return fd;
}

class Wire {
  public:
    Wire(std::array<int, 2> ends, int64_t delay_ns, int64_t jitter_ns)
        : ends_(ends), delay_ns_(delay_ns), jitter_(-jitter_ns, jitter_ns) {}

    void Turn() {
        Sleep();
        for (int end = 0; end < 2; ++end) Take(end);
        while (!packets_.empty() && packets_.begin()->first <= weft::NowNs()) {
            const Packet& packet = packets_.begin()->second;
            // A packet that the other end does not accept is lost, as on any wire.
            if (::write(packet.to, packet.bytes.data(), packet.bytes.size()) < 0) ++lost_;
            packets_.erase(packets_.begin());
        }
    }

  private:
    struct Packet {
        int to;
        std::vector<char> bytes;
    };

    void Sleep() {
        std::array<pollfd, 2> fds = {{{ends_[0], POLLIN, 0}, {ends_[1], POLLIN, 0}}};
        timespec wait{};
        if (!packets_.empty()) {
            const int64_t ns = std::max<int64_t>(0, packets_.begin()->first - weft::NowNs());
            wait = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
        }
        ::ppoll(fds.data(), fds.size(), packets_.empty() ? nullptr : &wait, nullptr);
    }

    void Take(int end) {
        for (;;) {
            const ssize_t got = ::read(ends_[end], buffer_.data(), buffer_.size());
            if (got <= 0) return;
            if (packets_.size() >= kMostPackets) continue;
            const int64_t delay = switched_on ? delay_ns_ + jitter_(random_) : 0;
            packets_.emplace(weft::NowNs() + delay,
                             Packet{ends_[1 - end], {buffer_.data(), buffer_.data() + got}});
        }
    }

    std::array<int, 2> ends_;
    int64_t delay_ns_;
    std::uniform_int_distribution<int64_t> jitter_;
    std::mt19937_64 random_{1};
    std::multimap<int64_t, Packet> packets_;  // by arrival time
    std::vector<char> buffer_ = std::vector<char>(kLongestPacket);
    int64_t lost_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: slow_wire NAMESPACE_A NAMESPACE_B DELAY_US JITTER_US\n");
        return 2;
    }
    const std::array<int, 2> ends = {OpenEnd(argv[1]), OpenEnd(argv[2])};
    Wire wire(ends, std::atol(argv[3]) * 1000, std::atol(argv[4]) * 1000);
    const sched_param before_others{.sched_priority = 1};
    ::sched_setscheduler(0, SCHED_FIFO, &before_others);
    ::prctl(PR_SET_TIMERSLACK, 1);
    std::signal(SIGUSR1, Switch);
    std::puts("ready");
    std::fflush(stdout);
    for (;;) wire.Turn();
}
