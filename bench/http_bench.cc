// Measures the cost of the HTTP layer: one chunk per stream and step, like the tokens of many
// streams, and small consecutive requests on one connection.
//
//     build/bench/http_bench [STREAMS [CHUNK BYTES]]      (32, 200)
//
// Prints microseconds of CPU time per chunk, on the writing thread (the scheduler's) and on the I/O
// thread, and requests per second of one connection.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "serve/http/server.h"

namespace {

using namespace weft;
using namespace weft::serve;

double CpuSeconds(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

int Connect(int port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    WEFT_CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void Ask(int fd) {
    constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    WEFT_CHECK(::send(fd, kRequest.data(), kRequest.size(), 0) > 0);
}

struct Held {
    std::mutex mutex;
    std::vector<std::shared_ptr<Exchange>> exchanges;
};

// Reads and discards the data of `fds` until `stop`; stores its CPU time in `cpu_s`.
void ReadAll(const std::vector<int>& fds, const std::atomic<bool>& stop, double& cpu_s) {
    std::vector<pollfd> entries;
    for (int fd : fds) entries.push_back({fd, POLLIN, 0});
    std::vector<char> buffer(1 << 16);
    while (!stop) {
        if (::poll(entries.data(), entries.size(), 10) <= 0) continue;
        for (const pollfd& entry : entries) {
            if (entry.revents == 0) continue;
            [[maybe_unused]] const ssize_t got =
                ::recv(entry.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
        }
    }
    cpu_s = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
}

void Streams(size_t streams, size_t chunk_bytes) {
    constexpr int kSteps = 2000, kStepUs = 500;
    Held held;
    auto server = HttpServer::Start({.port = 0}, [&](std::shared_ptr<Exchange> exchange) {
        const std::lock_guard lock(held.mutex);
        held.exchanges.push_back(std::move(exchange));
    });
    WEFT_CHECK(server.ok());
    std::vector<int> fds;
    for (size_t i = 0; i < streams; ++i) {
        fds.push_back(Connect((*server)->port()));
        Ask(fds.back());
    }
    while ((*server)->open_exchanges() < streams) ::usleep(1000);
    std::atomic<bool> stop{false};
    double reader_s = 0;
    std::thread reader([&] { ReadAll(fds, stop, reader_s); });
    for (const auto& exchange : held.exchanges) exchange->Begin(200, {});
    const std::string chunk(chunk_bytes, 'x');
    const double begin_s = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    double writer_s = 0;
    for (int step = 0; step < kSteps; ++step) {
        const double before = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
        for (const auto& exchange : held.exchanges) exchange->Write(chunk);
        writer_s += CpuSeconds(CLOCK_THREAD_CPUTIME_ID) - before;
        ::usleep(kStepUs);
    }
    while (held.exchanges.back()->backlog_bytes() > 0) ::usleep(1000);
    const double all_s = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - begin_s;
    stop = true;
    reader.join();
    const double chunks = static_cast<double>(streams) * kSteps;
    fmt::print(
        "{} streams, {} bytes a chunk: {:.2f} us on the writer's thread, {:.2f} us on the I/O "
        "thread\n",
        streams, chunk_bytes, writer_s / chunks * 1e6,
        (all_s - writer_s - reader_s) / chunks * 1e6);
    held.exchanges.clear();
    for (int fd : fds) ::close(fd);
}

void Requests() {
    constexpr int kRequests = 20'000;
    auto server = HttpServer::Start({.port = 0}, [](std::shared_ptr<Exchange> exchange) {
        exchange->Send(200, {{"Content-Type", "text/plain"}}, "hello\n");
    });
    WEFT_CHECK(server.ok());
    const int fd = Connect((*server)->port());
    char buffer[4096];
    const int64_t begin_ns = NowNs();
    for (int i = 0; i < kRequests; ++i) {
        Ask(fd);
        WEFT_CHECK(::recv(fd, buffer, sizeof buffer, 0) > 0);
    }
    fmt::print("one connection, one request at a time: {:.0f} requests/s\n",
               kRequests / (static_cast<double>(NowNs() - begin_ns) * 1e-9));
    ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
    const size_t streams = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 32;
    const size_t bytes = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 200;
    Streams(std::max<size_t>(1, streams), std::max<size_t>(1, bytes));
    Requests();
    return 0;
}
