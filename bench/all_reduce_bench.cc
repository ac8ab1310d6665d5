// Measures the cost of an all_reduce (f32, sum) between processes of this machine, one core each.
// Run: all_reduce_bench [--ranks 2] [--transport shm,tcp] [--algorithm auto,one_shot,...]
//                       [--bytes 64,...] [--seconds 0.05] [--allreduce-dtype full,bf16,q8]
//                       [--float64] [--encrypt]
//      all_reduce_bench --idle 2 [--ranks 4]     CPU use of ranks that wait for a late one
//
// Prints a JSON object. "distance_us" is the one-way time of 64 bytes through shared memory before
// and after each run ("near" cores: below 0.15, see bench/fabric.sh). "rows" has one row per
// transport, algorithm and size, in microseconds: median and 99th percentile of single calls on
// rank 0, back to back; "wire_p50_us" counts from the arrival of the last rank. Results are
// checked.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "coll/comm.h"
#include "hw/cpu.h"
#include "net/local.h"
#include "net/wait_policy.h"

namespace {

using weft::Deadline;
using weft::NowNs;
using weft::coll::Algorithm;
using weft::coll::Choice;
using weft::coll::Comm;
using weft::coll::WireType;

constexpr size_t kWindow = size_t{4} << 20;
constexpr int64_t kTimeoutMs = 20'000;
constexpr int kMostCalls = 50'000;
constexpr int kLeastCalls = 100;
constexpr int kCalibration = 50;
const weft::net::OpTag kTag{"all_reduce", 0, 0};

struct Options {
    int ranks = 2;
    std::vector<std::string> transports{"shm", "tcp"};
    std::vector<std::string> algorithms{"auto"};
    std::vector<size_t> bytes{64, 256, 1024, 4096, 8192, 16384, 65536, 262144, 1048576};
    std::vector<std::string> wires{"full"};
    double seconds = 0.05;
    double idle_s = 0;  // > 0: measure a wait of this length instead
    bool float64 = false;
    bool encrypt = false;
    std::vector<int> cores = weft::AllowedCores();  // before any pinning

    void Pin(int rank) const {
        weft::RunThisThreadOn({&cores[static_cast<size_t>(rank) % cores.size()], 1});
    }
};

pid_t Fork() {
    const pid_t pid = ::fork();
    if (pid < 0) std::abort();
    if (pid == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

// The one-way time of 64 bytes through shared memory, which shows the distance of the two cores.
double DistanceUs(const Options& options) {
    struct Inbox {
        alignas(64) std::atomic<uint32_t> flag;
        alignas(64) char slot[64];
    };
    constexpr uint32_t kRounds = 4000;
    void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto* inboxes = new (memory) Inbox[2]();
    char data[64] = {};
    const auto put = [&](int to, uint32_t round) {
        std::memcpy(inboxes[to].slot, data, sizeof data);
        inboxes[to].flag.store(round, std::memory_order_release);
    };
    const auto take = [&](int at, uint32_t round) {
        while (inboxes[at].flag.load(std::memory_order_acquire) < round) weft::net::SpinPause();
        std::memcpy(data, inboxes[at].slot, sizeof data);
    };
    const pid_t child = Fork();
    if (child == 0) {
        options.Pin(1);
        for (uint32_t i = 1; i <= kRounds; i++) take(1, i), put(0, i);
        ::_exit(0);
    }
    options.Pin(0);
    std::vector<int64_t> took;
    for (uint32_t i = 1; i <= kRounds; i++) {
        const int64_t begin = NowNs();
        put(1, i), take(0, i);
        took.push_back(NowNs() - begin);
    }
    ::waitpid(child, nullptr, 0);
    ::munmap(memory, 4096);
    std::nth_element(took.begin(), took.begin() + kRounds / 2, took.end());
    return static_cast<double>(took[kRounds / 2]) / 2e3;
}

void Must(const weft::Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "all_reduce_bench: {}\n", status.error().message);
    ::_exit(1);
}

struct Row {
    double p50_us, p99_us, mean_us, wire_p50_us;
};

double Percentile(std::vector<double>& values, double part) {
    const size_t at = static_cast<size_t>(static_cast<double>(values.size() - 1) * part);
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at),
                     values.end());
    return values[at];
}

// The data is not refilled between calls. A decode step writes it anew each time.
template <typename T>
Row Measure(Comm& comm, size_t bytes, Choice choice, double seconds) {
    std::vector<T> start(bytes / sizeof(T));
    for (size_t i = 0; i < start.size(); i++) start[i] = static_cast<T>(i % 7);
    std::vector<T> data = start;
    Must(comm.AllReduce(data, kTag, choice));
    for (size_t i = 0; i < data.size(); i++) {
        const T expected = start[i] * static_cast<T>(comm.size());
        // Whole numbers up to 6 have an error below half a step of 6 / 127 each.
        const T allowed = choice.wire == WireType::kQ8 ? static_cast<T>(comm.size()) / 20 : T{0};
        if (!(std::abs(data[i] - expected) <= allowed)) {
            Must(weft::MakeError(weft::ErrorCode::kCorrupt, "a wrong sum at {}", i));
        }
    }
    std::fill(data.begin(), data.end(), T{0});
    const auto run = [&](int64_t calls) {
        for (int64_t i = 0; i < calls; i++) Must(comm.AllReduce(data, kTag, choice));
    };
    run(kCalibration);
    int64_t begin = NowNs();
    run(kCalibration);
    const double each_s = static_cast<double>(NowNs() - begin) / 1e9 / kCalibration;
    int64_t calls = std::clamp<int64_t>(static_cast<int64_t>(seconds / (each_s + 1e-9)),
                                        kLeastCalls, kMostCalls);
    Must(comm.Broadcast(std::as_writable_bytes(std::span(&calls, 1)), 0, kTag));
    run(calls / 4);
    std::vector<double> took_us;
    std::vector<double> wire_us;
    took_us.reserve(static_cast<size_t>(calls));
    wire_us.reserve(static_cast<size_t>(calls));
    const int64_t whole = NowNs();
    for (int64_t i = 0; i < calls; i++) {
        begin = NowNs();
        Must(comm.AllReduce(data, kTag, choice));
        took_us.push_back(static_cast<double>(NowNs() - begin) / 1e3);
        const weft::coll::Timing timing = comm.last_timing();
        wire_us.push_back(static_cast<double>(timing.end_ns - timing.last_arrival_ns) / 1e3);
    }
    const double mean_us = static_cast<double>(NowNs() - whole) / 1e3 / static_cast<double>(calls);
    return {Percentile(took_us, 0.5), Percentile(took_us, 0.99), mean_us, Percentile(wire_us, 0.5)};
}

template <typename T>
T Known(const weft::Result<T>& parsed) {
    if (!parsed.ok()) Must(parsed.error());
    return *parsed;
}

// All other ranks wait for rank 0, which is late; rank 0 prints the CPU use of the waits.
void Idle(Comm& comm, const Options& options) {
    constexpr int kWarmUps = 100;
    for (int i = 0; i < kWarmUps; i++) Must(comm.Barrier(kTag));
    const auto cpu_s = [] {
        rusage used;
        ::getrusage(RUSAGE_SELF, &used);
        const auto seconds = [](const timeval& t) {
            return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
        };
        return seconds(used.ru_utime) + seconds(used.ru_stime);
    };
    const double before_s = cpu_s();
    if (comm.rank() == 0) ::usleep(static_cast<useconds_t>(options.idle_s * 1e6));
    Must(comm.Barrier(kTag));
    std::vector<double> used(static_cast<size_t>(comm.size()));
    used[static_cast<size_t>(comm.rank())] = cpu_s() - before_s;
    Must(comm.AllReduce(used, kTag));
    double all_s = 0;
    for (double rank_s : used) all_s += rank_s;
    if (comm.rank() != 0) return;
    fmt::print("{{\"idle_percent\": {:.3f}}}\n", all_s / options.idle_s * 100);
    std::fflush(stdout);
}

// Runs as one rank; rank 0 prints.
void RunRank(weft::net::LocalMesh& mesh, int rank, const std::string& transport,
             const Options& options, const char*& separator) {
    mesh.DropOthers(rank);
    options.Pin(rank);
    auto fabric = mesh.Connect(rank, Deadline::In(kTimeoutMs));
    if (!fabric.ok()) Must(fabric.error());
    std::vector<int> ranks;
    for (int r = 0; r < options.ranks; r++) ranks.push_back(r);
    const weft::coll::Channel channel{.window_bytes = kWindow};
    auto comm = Comm::Make(*fabric, ranks, channel, kTimeoutMs).value();
    if (options.idle_s > 0) return Idle(*comm, options);
    const auto print = [&](const Choice& choice, size_t bytes) {
        const auto measure = options.float64 ? Measure<double> : Measure<float>;
        const Row row = measure(*comm, bytes, choice, options.seconds);
        if (rank != 0) return;
        fmt::print(
            "{}{{\"transport\": \"{}\", \"algorithm\": \"{}\", \"wire\": \"{}\", \"ranks\": {}, "
            "\"bytes\": {}, \"p50_us\": {:.2f}, \"p99_us\": {:.2f}, \"mean_us\": {:.2f}, "
            "\"wire_p50_us\": {:.2f}}}",
            separator, transport, AlgorithmName(choice.algorithm), WireName(choice.wire),
            options.ranks, bytes, row.p50_us, row.p99_us, row.mean_us, row.wire_p50_us);
        separator = ",\n  ";
        std::fflush(stdout);
    };
    for (const std::string& algorithm : options.algorithms) {
        for (const std::string& wire : options.wires) {
            const Choice choice{Known(weft::coll::ParseAlgorithm(algorithm)),
                                Known(weft::coll::ParseWire(wire))};
            for (size_t bytes : options.bytes) print(choice, bytes);
        }
    }
    Must(comm->Barrier(kTag));
}

void RunTransport(const std::string& transport, const Options& options, const char*& separator) {
    const auto kind = weft::net::ParseTransport(transport);
    if (!kind.ok()) Must(kind.error());
    using weft::net::Encryption;
    const auto encryption = options.encrypt ? Encryption::kAlways : Encryption::kBetweenHosts;
    auto mesh = weft::net::LocalMesh::Make(options.ranks, *kind, kWindow, 1, encryption).value();
    std::vector<pid_t> children;
    for (int rank = 1; rank < options.ranks; rank++) {
        children.push_back(Fork());
        if (children.back() != 0) continue;
        RunRank(mesh, rank, transport, options, separator);
        ::_exit(0);
    }
    RunRank(mesh, 0, transport, options, separator);
    for (pid_t child : children) ::waitpid(child, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"What an all_reduce costs between processes of this machine."};
    app.add_option("--ranks", options.ranks)->check(CLI::Range(1, 64));
    app.add_option("--transport", options.transports)->delimiter(',');
    app.add_option("--algorithm", options.algorithms)->delimiter(',');
    app.add_option("--bytes", options.bytes)->delimiter(',');
    app.add_option("--allreduce-dtype", options.wires)->delimiter(',');
    app.add_option("--seconds", options.seconds, "for each row");
    app.add_option("--idle", options.idle_s, "seconds that all wait for rank 0, and nothing else");
    app.add_flag("--float64", options.float64, "of doubles instead of floats");
    app.add_flag("--encrypt", options.encrypt, "tcp links, as between hosts");
    bool probe = false;
    app.add_flag("--probe", probe, "print the distance of the cores, nothing else");
    CLI11_PARSE(app, argc, argv);
    if (probe) {
        fmt::print("{:.3f}\n", DistanceUs(options));
        return 0;
    }
    if (options.idle_s > 0) {
        const char* unused = "";
        RunTransport(options.transports[0], options, unused);
        return 0;
    }
    const double before_us = DistanceUs(options);
    const char* separator = "{\"rows\": [\n  ";
    for (const std::string& transport : options.transports) {
        RunTransport(transport, options, separator);
    }
    fmt::print("],\n \"distance_us\": [{:.3f}, {:.3f}]}}\n", before_us, DistanceUs(options));
    return 0;
}
