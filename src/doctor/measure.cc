#include "doctor/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "coll/comm.h"
#include "net/local.h"

namespace weft::doctor {
namespace {

constexpr size_t kWindow = size_t{4} << 20;
constexpr size_t kSizes[] = {64, 8192, 1 << 20};
constexpr size_t kReduceBytes = 8192;
constexpr int64_t kTimeoutMs = 3000;
constexpr int kMostRounds = 2000;
constexpr int64_t kSizeNs = 60'000'000;  // per size
constexpr int kFlag = net::kFlags - 1;   // the collectives use the first flags

struct Timed {
    std::string op;
    size_t size;
    std::vector<double> us;
    std::string Line() {
        std::ranges::sort(us);
        const auto at = [&](double share) {
            return us[std::min(us.size() - 1, static_cast<size_t>(share * us.size()))];
        };
        return fmt::format("{} {} {:.2f} {:.2f}\n", op, size, at(0.5), at(0.99));
    }
};

int RoundsOf(double first_us) {
    const double rounds = static_cast<double>(kSizeNs) * 1e-3 / std::max(first_us, 0.05);
    return static_cast<int>(std::clamp(rounds, 20.0, static_cast<double>(kMostRounds)));
}

// Both ranks run this. Rank 0 keeps the times and chooses the number of rounds from the first few;
// the first byte of a message marks the last round.
Status PingPong(net::Fabric& fabric, size_t size, uint64_t& sent, Timed* timed) {
    net::Link& link = *fabric.links[static_cast<size_t>(1 - fabric.rank)];
    const std::vector<std::byte> data(size);
    const net::OpTag tag{"ping_pong", 0, 0};
    constexpr int kWarm = 10;
    int rounds = 2 * kWarm;
    for (int round = 0; round < rounds; ++round) {
        const Deadline deadline = Deadline::In(kTimeoutMs);
        const bool last = timed != nullptr && round + 1 == rounds;
        const uint64_t value = 2 * ++sent;
        const int64_t begin = NowNs();
        if (fabric.rank == 0) {
            const std::byte word{static_cast<unsigned char>(last)};
            WEFT_TRY(link.Put(0, std::span(&word, 1), std::span(data).subspan(1), kFlag, value, tag,
                              deadline));
        }
        WEFT_TRY(link.Wait(kFlag, value, tag, deadline));
        if (fabric.rank == 1) {
            const bool told_last = link.window()[0] != std::byte{0};
            WEFT_TRY(link.Put(0, {}, data, kFlag, value, tag, deadline));
            rounds = told_last ? round + 1 : round + 2;
            continue;
        }
        const double us = static_cast<double>(NowNs() - begin) * 0.5e-3;
        if (round >= kWarm) timed->us.push_back(us);
        if (round == kWarm) rounds = kWarm + RoundsOf(2 * us);
    }
    return {};
}

Status AllReduces(net::Fabric& fabric, Timed* timed) {
    WEFT_ASSIGN(const auto comm,
                coll::Comm::Make(fabric, {0, 1}, {0, kWindow / 2, 0, 4}, kTimeoutMs));
    std::vector<float> data(kReduceBytes / sizeof(float), 1.0f);
    constexpr int kWarm = 10, kRounds = 300;
    for (int round = 0; round < kWarm + kRounds; ++round) {
        const int64_t begin = NowNs();
        WEFT_TRY(comm->AllReduce(data, {"all_reduce", round, 0}));
        const double us = static_cast<double>(NowNs() - begin) * 1e-3;
        if (timed != nullptr && round >= kWarm) timed->us.push_back(us);
        std::ranges::fill(data, 1.0f);
    }
    return {};
}

Status RunRank(net::Fabric& fabric, std::string* report) {
    uint64_t sent = 0;
    for (size_t size : kSizes) {
        Timed timed{"one_way", size, {}};
        WEFT_TRY(PingPong(fabric, size, sent, report == nullptr ? nullptr : &timed));
        if (report != nullptr) *report += timed.Line();
    }
    Timed timed{"all_reduce", kReduceBytes, {}};
    WEFT_TRY(AllReduces(fabric, report == nullptr ? nullptr : &timed));
    if (report != nullptr) *report += timed.Line();
    return {};
}

}  // namespace

Result<std::string> MeasureLocal(net::Transport transport) {
    WEFT_ASSIGN(std::vector<net::Fabric> fabrics, net::MakeLocalFabrics(2, transport, kWindow));
    std::string report;
    Status other;
    std::thread peer([&] { other = RunRank(fabrics[1], nullptr); });
    const Status own = RunRank(fabrics[0], &report);
    peer.join();
    WEFT_TRY(own);
    WEFT_TRY(other);
    return report;
}

}  // namespace weft::doctor
