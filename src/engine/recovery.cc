#include "engine/recovery.h"

#include <algorithm>
#include <utility>

#include "backend/device_list.h"
#include "base/log.h"
#include "engine/feed.h"
#include "model/shard.h"

namespace weft::engine {
namespace {

// Attempts to get over one loss, each ended by another.
constexpr int kMostAttempts = 5;

std::string Names(const std::vector<int>& ranks) {
    std::string text;
    for (int rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
    return text;
}

// As far as the names of the devices tell.
bool TensorRanksAreAlike(const std::string& devices, int tp) {
    const std::vector<std::string> names = backend::DeviceNames(devices);
    for (size_t rank = 0; rank < names.size(); ++rank) {
        const auto group = static_cast<size_t>(tp);
        if (names[rank] != names[rank / group * group]) return false;
    }
    return true;
}

// What rank 0 says of it.
std::string Line(const Recovery& recovery, const std::string& why) {
    const std::string more =
        recovery.lost.size() > 1 ? fmt::format(" (lost in all: {})", Names(recovery.lost)) : "";
    return fmt::format("{}{}; epoch {} with {} rank{} after {:.2f} s", why, more, recovery.epoch,
                       recovery.ranks, recovery.ranks == 1 ? "" : "s", recovery.seconds);
}

}  // namespace

Result<Job> ReplanJob(const Job& job, int ranks, const std::vector<int>& kept) {
    WEFT_ASSIGN(const model::Layout before,
                model::MakeLayout(ranks, job.tp, job.pp, job.split, job.ep));
    const int left = static_cast<int>(kept.size());
    Job next = job;
    next.split.clear();
    next.device = backend::KeepDevices(job.device, kept);
    if (before.tp == 1) {
        next.tp = 1;
        next.pp = left;
    } else if (before.pp == 1 || left % before.tp != 0) {
        next.tp = left;
        next.pp = 1;
    } else {
        next.tp = before.tp;
        next.pp = left / before.tp;
    }
    if (!TensorRanksAreAlike(next.device, next.tp)) {
        next.tp = 1;
        next.pp = left;
    }
    if (next.ep > 0 && next.tp % next.ep != 0) next.ep = 0;
    // Shares stay with their ranks, where each rank has its own.
    const bool own =
        job.split.size() == static_cast<size_t>(ranks) && (before.tp == 1 || before.pp == 1);
    if (own) {
        for (int rank : kept) next.split.push_back(job.split[static_cast<size_t>(rank)]);
    }
    return next;
}

// What shares `auto` came to stays, so that ranks that go on need not measure again.
static void KeepShares(const Rank* rank, Job& job) {
    if (rank == nullptr || !job.split_auto || rank->job().split_auto) return;
    job.split = rank->job().split;
    job.split_auto = false;
}

Status OpenRank(const Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank) {
    std::unique_ptr<model_files::ModelSource> source;
    if (job.feed && cluster.size() > 1) {
        // Every rank takes part, also one that has its weights already.
        cluster.SetPhase("load");
        WEFT_ASSIGN(source, OpenFed(job, cluster));
    }
    if (rank == nullptr) {
        WEFT_ASSIGN(rank, Rank::Make(job, cluster, std::move(source)));
    }
    return rank->Enter();
}

Status OpenFirstRank(Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank,
                     std::vector<Recovery>& recoveries) {
    const Status opened = OpenRank(job, cluster, rank);
    KeepShares(rank.get(), job);
    if (opened.ok()) return {};
    if (!cluster.recovers()) return cluster.ReportFailure(opened.error());
    return Recover(job, cluster, rank, opened.error(), recoveries);
}

Result<std::vector<RankReport>> EndJob(int64_t number, cluster::Cluster& cluster,
                                       std::unique_ptr<Rank>& rank) {
    const auto run = [&]() -> Result<std::vector<RankReport>> {
        StepData stop;
        stop.kind = StepKind::kStop;
        stop.number = number;
        WEFT_TRY(rank->Run(stop));
        WEFT_ASSIGN(std::vector<RankReport> reports, rank->GatherReports());
        rank.reset();
        WEFT_TRY(cluster.Shutdown(Deadline::In(cluster::kShutdownMs)));
        return reports;
    };
    auto reports = run();
    if (reports.ok()) return reports;
    return cluster.ReportFailure(reports.error());
}

Status Recover(Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank, Error error,
               std::vector<Recovery>& recoveries) {
    if (!cluster.recovers()) return error;
    const int64_t begin_ns = NowNs();
    const int ranks = cluster.size();
    Recovery recovery;
    std::string why;
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
        if (rank != nullptr) rank->LeaveEpoch();
        auto next = cluster.NextEpoch(error, [&](const auto& kept) -> Result<std::string> {
            if (std::cmp_equal(kept.size(), cluster.size())) return JobToJson(job);
            WEFT_ASSIGN(Job replanned, ReplanJob(job, cluster.size(), kept));
            // What `auto` came to stays.
            if (rank != nullptr && rank->wire() != backend::SumWire::kAuto) {
                replanned.wire = rank->wire();
            }
            return JobToJson(replanned);
        });
        if (!next.ok()) {
            error = next.error();
            break;
        }
        WEFT_ASSIGN(job, JobFromJson(cluster.job()));
        // (Who measures does so with all others.)
        if (!next->same_place || job.split_auto) rank.reset();
        if (why.empty()) why = next->why;
        recovery.lost.insert(recovery.lost.end(), next->lost.begin(), next->lost.end());
        const Status status = OpenRank(job, cluster, rank);
        KeepShares(rank.get(), job);
        if (status.ok()) {
            recovery.epoch = next->epoch;
            recovery.ranks = cluster.size();
            recovery.seconds = SecondsSince(begin_ns);
            if (cluster.rank() != 0) {
                SetLogRank(cluster.rank());
                return {};
            }
            cluster.NoteAllReady();
            recovery.text = Line(recovery, why);
            LogLine(LogLevel::kWarning, recovery.text);
            recoveries.push_back(std::move(recovery));
            return {};
        }
        error = status.error();
    }
    error = cluster.ReportFailure(std::move(error));
    // A user's wish is no failure; and a loss that nothing was done about speaks for itself.
    if (why.empty() || cluster.rank() != 0 || error.code == ErrorCode::kCancelled) return error;
    return MakeError(ErrorCode::kPeerLost, "{}. The job could not go on, with {} of {} ranks: {}",
                     why, cluster.size(), ranks, error.message);
}

}  // namespace weft::engine
