#include "sim/sums.h"

#include <string>
#include <vector>

#include "coll/comm.h"

namespace weft::sim {
namespace {

constexpr size_t kValues = 64;
constexpr int kLastSteps = 2;

class Sums final : public Workload {
  public:
    explicit Sums(const Plan& plan) : plan_(plan) {}

    Status RunRoot(const cluster::ClusterOptions& options, bool last, Outcome& outcome) override {
        const int steps = last ? kLastSteps : plan_.steps;
        WEFT_ASSIGN(auto cluster, cluster::Cluster::Launch(options, std::to_string(steps)));
        return Work(*cluster, &outcome);
    }
    Status RunRank(cluster::Cluster& cluster) override { return Work(cluster, nullptr); }
    std::string Check(const Outcome& outcome) const override {
        return outcome.error.find(kWrong) == std::string::npos ? "" : outcome.error;
    }

  private:
    static constexpr const char* kWrong = "a sum is wrong";

    // outcome: rank 0's; null: another rank.
    Status Work(cluster::Cluster& cluster, Outcome* outcome) {
        const int64_t steps = std::stoll(cluster.job());
        int64_t done = 0;
        const auto replan = [&](const std::vector<int>&) -> Result<std::string> {
            return cluster.job();
        };
        for (;;) {
            Status status = cluster.Agree("model", "the same", Deadline::In(60'000));
            if (status.ok()) status = Steps(cluster, steps, done, outcome);
            if (status.ok()) return cluster.Shutdown(Deadline::In(cluster::kShutdownMs));
            if (status.error().code == ErrorCode::kCorrupt || !cluster.recovers()) {
                return cluster.ReportFailure(status.error());
            }
            auto next = cluster.NextEpoch(status.error(), replan);
            if (!next.ok()) return cluster.ReportFailure(next.error());
        }
    }

    Status Steps(cluster::Cluster& cluster, int64_t steps, int64_t& done, Outcome* outcome) const {
        const int size = cluster.size();
        std::vector<int> ranks;
        for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
        std::unique_ptr<coll::Comm> comm;
        if (size > 1) {
            const size_t window =
                cluster.fabric().links[cluster.rank() == 0 ? 1 : 0]->window_bytes();
            WEFT_ASSIGN(comm, coll::Comm::Make(cluster.fabric(), ranks, {0, window, 0, 4},
                                               cluster.timeout_ms()));
        }
        // A rank that has rejoined has missed steps: rank 0 states the job's step.
        WEFT_ASSIGN(const auto stands,
                    cluster.AllGather("done", std::to_string(done), Deadline::In(60'000)));
        done = std::stoll(stands[0]);
        if (cluster.rank() == 0) cluster.NoteAllReady();
        std::vector<float> data(kValues);
        for (; done < steps; ++done) {
            if (outcome != nullptr) outcome->steps = done;
            for (size_t i = 0; i < kValues; ++i) {
                data[i] =
                    static_cast<float>((cluster.rank() + 1) * (done + 1)) + static_cast<float>(i);
            }
            if (comm != nullptr) WEFT_TRY(comm->AllReduce(data, {"all_reduce", done, done}));
            for (size_t i = 0; i < kValues; ++i) {
                const auto expected = static_cast<float>(size * (size + 1) / 2 * (done + 1)) +
                                      static_cast<float>(i) * static_cast<float>(size);
                if (data[i] != expected) {
                    return MakeError(ErrorCode::kCorrupt, "{} in step {}: {}, expected {}", kWrong,
                                     done, data[i], expected);
                }
            }
            if (plan_.pace_ns > 0) Kernel::Current()->Sleep(plan_.pace_ns);
        }
        if (outcome != nullptr) {
            outcome->steps = done;
            outcome->complete = true;
        }
        return {};
    }

    const Plan plan_;
};

}  // namespace

std::unique_ptr<Workload> MakeSums(const Plan& plan) {
    return std::make_unique<Sums>(plan);
}

}  // namespace weft::sim
