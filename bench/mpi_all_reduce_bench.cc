// Measures the cost of an all_reduce (f32, sum) over `mpi` links, one core each.
// Run: mpirun -n 2 --bind-to none mpi_all_reduce_bench [--bytes 64,...] [--seconds 0.05]
//
// Rank 0 prints a JSON list, one row per size, in microseconds: median and 99th percentile of
// single calls, back to back, with the best of the algorithms that the autotuner would try. Sums
// are checked.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cluster/frame.h"
#include "cluster/join/launcher.h"
#include "coll/comm.h"
#include "hw/cpu.h"
#include "net/fabric.h"
#include "net/mpi/library.h"

namespace {

using namespace weft;

constexpr int64_t kTimeoutMs = 20'000;
constexpr size_t kCard = 8192;
constexpr int kMostCalls = 50'000, kLeastCalls = 100, kCalibration = 50;
const net::OpTag kTag{"all_reduce", 0, 0};

void Must(const Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "mpi_all_reduce_bench: {}\n", status.error().message);
    std::exit(1);
}

template <typename T>
T Must(Result<T> result) {
    if (!result.ok()) Must(Status(result.error()));
    return std::move(result).value();
}

// Offers are exchanged over MPI itself.
net::Fabric Connect(net::MpiLibrary& mpi) {
    const Deadline deadline = Deadline::In(kTimeoutMs);
    net::FabricOptions options;
    options.rank = mpi.rank();
    options.size = mpi.size();
    options.transport = net::Transport::kMpi;
    options.mpi = &mpi;
    auto builder = Must(net::FabricBuilder::Make(options));
    std::vector<std::string> mine;
    for (int peer = 0; peer < mpi.size(); ++peer) mine.push_back(builder->OfferTo(peer));
    std::string packed = cluster::PackStrings(mine);
    const size_t length = packed.size();
    packed.resize(kCard);
    std::memcpy(packed.data() + kCard - sizeof length, &length, sizeof length);
    std::string all(kCard * static_cast<size_t>(mpi.size()), '\0');
    Must(mpi.AllGather(std::as_bytes(std::span(packed)), std::as_writable_bytes(std::span(all)),
                       deadline));
    std::vector<std::string> offers;
    for (size_t peer = 0; peer < mine.size(); ++peer) {
        const std::string card = all.substr(peer * kCard, kCard);
        size_t bytes = 0;
        std::memcpy(&bytes, card.data() + kCard - sizeof bytes, sizeof bytes);
        const auto theirs = Must(cluster::UnpackStrings(card.substr(0, bytes)));
        offers.push_back(theirs[static_cast<size_t>(mpi.rank())]);
    }
    return Must(builder->Connect(offers, deadline));
}

struct Row {
    double p50_us, p99_us;
};

double Percentile(std::vector<double>& values, double part) {
    const auto at = static_cast<ptrdiff_t>(static_cast<double>(values.size() - 1) * part);
    std::nth_element(values.begin(), values.begin() + at, values.end());
    return values[static_cast<size_t>(at)];
}

Row Measure(coll::Comm& comm, size_t bytes, coll::Algorithm algorithm, double seconds) {
    std::vector<float> data(bytes / sizeof(float));
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 7);
    Must(comm.AllReduce(data, kTag, {algorithm}));
    for (size_t i = 0; i < data.size(); ++i) {
        if (data[i] == static_cast<float>(i % 7) * static_cast<float>(comm.size())) continue;
        Must(MakeError(ErrorCode::kCorrupt, "a wrong sum at {} of {} bytes", i, bytes));
    }
    std::fill(data.begin(), data.end(), 0.0f);
    const auto run = [&](int64_t calls) {
        for (int64_t i = 0; i < calls; ++i) Must(comm.AllReduce(data, kTag, {algorithm}));
    };
    run(kCalibration);
    int64_t begin_ns = NowNs();
    run(kCalibration);
    const double each_s = static_cast<double>(NowNs() - begin_ns) / 1e9 / kCalibration;
    int64_t calls = std::clamp<int64_t>(static_cast<int64_t>(seconds / (each_s + 1e-9)),
                                        kLeastCalls, kMostCalls);
    Must(comm.Broadcast(std::as_writable_bytes(std::span(&calls, 1)), 0, kTag));
    run(calls / 4);
    std::vector<double> took_us(static_cast<size_t>(calls));
    for (double& us : took_us) {
        begin_ns = NowNs();
        Must(comm.AllReduce(data, kTag, {algorithm}));
        us = static_cast<double>(NowNs() - begin_ns) / 1e3;
    }
    return {Percentile(took_us, 0.5), Percentile(took_us, 0.99)};
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<size_t> sizes = {64, 256, 1024, 4096, 8192, 16384, 65536, 262144, 1048576};
    double seconds = 0.05;
    CLI::App app{"What an all_reduce costs over mpi links; start it by mpirun."};
    app.add_option("--bytes", sizes)->delimiter(',');
    app.add_option("--seconds", seconds, "for each row");
    CLI11_PARSE(app, argc, argv);
    const auto launcher = Must(cluster::FindLauncher(::getenv));
    if (!launcher.has_value() || launcher->mpi.empty()) {
        Must(MakeError(ErrorCode::kUsage, "start it by mpirun -n 2 or more"));
    }
    auto mpi = Must(net::MpiLibrary::Load(launcher->mpi));
    Must(mpi->Start(Deadline::In(kTimeoutMs)));
    const std::vector<int> cores = AllowedCores();
    RunThisThreadOn({&cores[static_cast<size_t>(mpi->rank()) % cores.size()], 1});
    {
        net::Fabric fabric = Connect(*mpi);
        std::vector<int> ranks;
        for (int rank = 0; rank < fabric.size; ++rank) ranks.push_back(rank);
        auto comm =
            Must(coll::Comm::Make(fabric, ranks, {.window_bytes = size_t{4} << 20}, kTimeoutMs));
        const char* separator = "[";
        for (size_t bytes : sizes) {
            Row best{1e30, 1e30};
            const char* name = "";
            for (coll::Algorithm algorithm : coll::AlgorithmsFor(mpi->size(), false)) {
                const Row row = Measure(*comm, bytes, algorithm, seconds);
                if (row.p50_us >= best.p50_us) continue;
                best = row;
                name = coll::AlgorithmName(algorithm);
            }
            if (mpi->rank() != 0) continue;
            fmt::print(
                "{}{{\"bytes\": {}, \"algorithm\": \"{}\", \"p50_us\": {:.2f}, "
                "\"p99_us\": {:.2f}}}",
                separator, bytes, name, best.p50_us, best.p99_us);
            separator = ",\n ";
        }
        if (mpi->rank() == 0) fmt::print("]\n");
        Must(comm->Barrier(kTag));
    }
    Must(mpi->Finish(Deadline::In(kTimeoutMs)));
    return 0;
}
