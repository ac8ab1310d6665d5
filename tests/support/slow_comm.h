// A communicator for tests of overlap and of failing links.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "coll/comm.h"
#include "support/wait.h"

namespace weft::support {

// Rank 0 of a group whose collectives return zeros, take time, and may fail.
class SlowComm final : public coll::Comm {
  public:
    // most_ms: longest time of a collective.
    explicit SlowComm(int size = 1, int most_ms = 3) : size_(size), most_ms_(most_ms) {}
    int rank() const override { return 0; }
    int size() const override { return size_; }
    void SetTuning(coll::Tuning) override {}
    const coll::Tuning& tuning() const override { return tuning_; }
    Status SetHosts(std::span<const int>) override { return {}; }
    Status AllReduce(std::span<float>, const net::OpTag&, coll::Choice) override { return Rest(); }
    Status AllReduce(std::span<double>, const net::OpTag&, coll::Choice) override { return Rest(); }
    Status AllReduce(std::span<double>, std::span<float>, const net::OpTag&,
                     coll::Choice) override {
        return Rest();
    }
    bool LeavesCpuIdle(size_t) const override { return true; }
    Status ReduceScatter(std::span<float>, std::span<const size_t>, const net::OpTag&,
                         coll::Algorithm) override {
        return Rest();
    }
    Status ReduceScatter(coll::WireType, std::span<const uint16_t>, std::span<const size_t>,
                         const TakeSums&, const net::OpTag&, coll::Algorithm) override {
        return Rest();
    }
    // Writes late, so that a premature read gets other data. The parts of other ranks are zeros.
    Status AllGather(std::span<std::byte> all, std::span<const size_t> bytes, const net::OpTag&,
                     coll::Algorithm) override {
        const std::vector<std::byte> own(all.begin(),
                                         all.begin() + static_cast<ptrdiff_t>(bytes[0]));
        std::ranges::fill(all, std::byte{0x3f});
        WEFT_TRY(Rest());
        std::ranges::fill(all, std::byte{0});
        std::ranges::copy(own, all.begin());
        return {};
    }
    Status AllToAll(std::span<const std::byte>, std::span<const size_t>, std::span<std::byte>,
                    std::span<const size_t>, const net::OpTag&) override {
        return Rest();
    }
    Status Broadcast(std::span<std::byte>, int, const net::OpTag&) override { return Rest(); }
    Status Send(std::span<const std::byte>, int, const net::OpTag&) override { return Rest(); }
    Status Recv(std::span<std::byte>, int, const net::OpTag&) override { return Rest(); }
    size_t max_send_bytes() const override { return 0; }
    Status Barrier(const net::OpTag&) override { return Rest(); }
    coll::Timing last_timing() const override { return {}; }
    uint64_t sent_bytes() const override { return 0; }

    int fails_after = INT32_MAX;  // number of collectives
    // collectives on other threads than the constructor's
    int elsewhere() const { return elsewhere_; }

  private:
    Status Rest() {
        elsewhere_ += std::this_thread::get_id() != maker_;
        if (fails_after-- <= 0) return MakeError(ErrorCode::kPeerLost, "rank 1 was lost");
        const int ms = static_cast<int>(seed_ = seed_ * 48271 % 2147483647) % (most_ms_ + 1);
        test::Pace(ms * 1000).Next();
        return {};
    }
    static coll::Tuning BuiltIn() {
        const coll::GroupShape shape;
        return coll::Tuning::BuiltIn(shape);
    }

    const std::thread::id maker_ = std::this_thread::get_id();
    int elsewhere_ = 0;
    const int size_, most_ms_;
    coll::Tuning tuning_ = BuiltIn();
    int64_t seed_ = 1;
};

}  // namespace weft::support
