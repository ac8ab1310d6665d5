#include "engine/recovery.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "backend/device_list.h"
#include "base/log.h"
#include "cluster/worker/memory_check.h"
#include "engine/rank/sum_wire.h"
#include "engine/rank/weight_stream.h"
#include "engine/start/examine.h"
#include "engine/start/layout_choice.h"
#include "engine/start/verify_model.h"
#include "model/shard.h"
#include "model_files/content.h"

namespace weft::engine {
namespace {

// Most attempts to recover from one loss, each ended by another loss.
constexpr int kMostAttempts = 5;
// More attempts follow for this time: memory, processes, threads or descriptors that a new rank
// lacks may be there again. (Between attempts, NextEpoch pauses.)
constexpr int64_t kRetryNs = 30'000'000'000;
constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string Names(const std::vector<int>& ranks) {
    std::string text;
    for (int rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
    return text;
}

// The identities of the devices of the ranks `kept`, of the previous ranks' identities (empty:
// unknown). "": of a new rank.
std::vector<std::string> KeepIdentities(const std::vector<std::string>& identities,
                                        const std::vector<int>& kept) {
    std::vector<std::string> own;
    for (const int rank : kept) {
        const bool known = std::cmp_less(rank, identities.size());
        own.push_back(known ? identities[static_cast<size_t>(rank)] : "");
    }
    return own;
}

// Whether tensor ranks have devices of one kind, as far as their names and the ranks' identities
// show.
bool TensorRanksAreAlike(const Job& job, const std::vector<std::string>& identities) {
    const std::vector<std::string> names = backend::DeviceNames(job.device);
    const auto group = static_cast<size_t>(std::max(1, job.tp));
    for (size_t rank = 0; rank < std::max(names.size(), identities.size()); ++rank) {
        const size_t first = rank / group * group;
        if (rank < names.size() && names[rank] != names[first]) return false;
        if (rank < identities.size() && !AreAlike({identities[first], identities[rank]})) {
            return false;
        }
    }
    return true;
}

// Rank 0's log line.
std::string Line(const Recovery& recovery, const std::string& why) {
    const std::string more =
        recovery.lost.size() > 1 ? fmt::format(" (lost in all: {})", Names(recovery.lost)) : "";
    return fmt::format("{}{}; epoch {} with {} rank{} after {:.2f} s", why, more, recovery.epoch,
                       recovery.ranks, recovery.ranks == 1 ? "" : "s", recovery.seconds);
}

// The end of rank 0's log line, if answers in progress may change. before, after: the identities of
// the ranks' devices; empty: unknown.
std::string DevicesText(std::vector<std::string> before, const std::vector<std::string>& after) {
    if (before.empty() || before == after) return "";
    before.insert(before.end(), after.begin(), after.end());
    if (AreAlike(std::move(before))) return "";
    return ". The devices do not all give the same bits: answers in progress may continue with "
           "other tokens";
}

// A layout of the `left` remaining ranks with the properties of `like`.
void LayOut(Job& job, const model::Layout& like, int left) {
    if (like.tp == 1 && like.pp > 1) {
        job.tp = 1;
        job.pp = left;
    } else if (like.pp == 1 || left % like.tp != 0) {
        job.tp = left;
        job.pp = 1;
    } else {
        job.tp = like.tp;
        job.pp = left / like.tp;
    }
}

// Ranks keep their shares; a new rank gets the mean share.
std::vector<double> SharesOf(const std::vector<double>& split, const std::vector<int>& kept) {
    const double mean = std::accumulate(split.begin(), split.end(), 0.0) /
                        static_cast<double>(std::max<size_t>(1, split.size()));
    std::vector<double> shares;
    for (const int rank : kept) {
        const bool known = std::cmp_less(rank, split.size());
        shares.push_back(known ? split[static_cast<size_t>(rank)] : mean);
    }
    return shares;
}

// The devices of the ranks `kept`. A rank that joins gets a device that the user named and that no
// other rank has, in the user's order.
std::string DevicesOf(const Job& job, int ranks, const std::vector<int>& kept, const Asked* asked) {
    std::vector<std::string> free;
    if (asked != nullptr) free = backend::DeviceNames(asked->job.device);
    if (free.size() < 2 || kept.back() < ranks) return backend::KeepDevices(job.device, kept);
    std::vector<std::string> devices;
    for (const int rank : kept) {
        auto at = free.begin();
        if (rank < ranks) {
            const auto own = backend::DeviceOfRank(job.device, rank, ranks);
            at = own.ok() ? std::ranges::find(free, *own) : free.end();
        }
        if (at == free.end()) break;  // (SpaceFor lets no more ranks join)
        devices.push_back(std::move(*at));
        free.erase(at);
    }
    return fmt::format("{}", fmt::join(devices, ","));
}

// Checks that the hosts of `kept`, processors, have the memory for the weights together. (Each rank
// checks its exact needs before it loads, but by then the job cannot return to the old layout.)
// rank: may be null.
Status CheckFreeSpace(const Rank* rank, const cluster::Cluster& cluster,
                      const std::vector<int>& kept) {
    if (rank == nullptr || rank->device() == nullptr) return {};
    if (rank->device()->info().name != "cpu") return {};
    std::vector<cluster::HostInfo> hosts;
    for (const int each : kept) {
        if (each >= cluster.size()) return {};  // unknown until it has joined
        hosts.push_back(cluster.host(each));
    }
    const uint64_t weights = rank->source().TotalBytes(), memory = cluster::MemoryOf(hosts);
    if (weights <= memory) return {};
    return MakeError(ErrorCode::kOutOfMemory,
                     "the weights need {:.1f} GiB, and the hosts of {} rank{} have {:.1f} GiB",
                     static_cast<double>(weights) / kGiB, kept.size(), kept.size() == 1 ? "" : "s",
                     static_cast<double>(memory) / kGiB);
}

}  // namespace

// Checks that the model of `rank` can be cut for `ranks` ranks of the job.
static Status CheckCut(const Job& job, int ranks, const Rank& rank) {
    WEFT_ASSIGN(const model::Layout layout,
                model::MakeLayout(ranks, job.tp, job.pp, job.split, job.ep));
    WEFT_TRY(model::PlanShards(rank.hyper(), rank.source(), layout));
    return {};
}

// A model that cannot be cut into so many tensor parts may have as many stages.
static void UseStagesIfUncut(Job& job, int ranks, const Rank& rank) {
    if (job.tp < 2 || CheckCut(job, ranks, rank).ok()) return;
    Job stages = job;
    stages.tp = 1;
    stages.pp = ranks;
    stages.ep = 0;
    if (CheckCut(stages, ranks, rank).ok()) job = std::move(stages);
}

Result<Job> ReplanJob(const Job& job, int ranks, const std::vector<int>& kept, const Asked* asked,
                      const Rank* rank, const std::vector<std::string>& identities) {
    WEFT_ASSIGN(const model::Layout before,
                model::MakeLayout(ranks, job.tp, job.pp, job.split, job.ep));
    const int left = static_cast<int>(kept.size());
    Job next = job;
    next.split.clear();
    next.device = DevicesOf(job, ranks, kept, asked);
    const bool as_asked = asked != nullptr && left == asked->ranks;
    if (as_asked) {
        next.tp = asked->job.tp;
        next.pp = asked->job.pp;
        next.ep = asked->job.ep;
        next.split = asked->job.split;
    } else if (asked != nullptr && left > ranks) {
        WEFT_ASSIGN(const model::Layout like,
                    model::MakeLayout(asked->ranks, asked->job.tp, asked->job.pp, asked->job.split,
                                      asked->job.ep));
        LayOut(next, like, left);
    } else {
        LayOut(next, before, left);
    }
    if (!TensorRanksAreAlike(next, KeepIdentities(identities, kept))) {
        next.tp = 1;
        next.pp = left;
    }
    if (next.ep > 0 && next.tp % next.ep != 0) next.ep = 0;
    // True: each rank has its own share.
    const bool own =
        job.split.size() == static_cast<size_t>(ranks) && (before.tp == 1 || before.pp == 1);
    if (own) next.split = SharesOf(job.split, kept);
    if (asked != nullptr && asked->job.split_auto && left > ranks) {
        next.split.clear();  // measured again, by all
        next.split_auto = true;
    }
    if (rank != nullptr && left < ranks) UseStagesIfUncut(next, left, *rank);
    return next;
}

Result<std::string> ReplanText(const std::string& job, int ranks, const std::vector<int>& kept) {
    WEFT_ASSIGN(const Job before, JobFromJson(job));
    WEFT_ASSIGN(const Job next, ReplanJob(before, ranks, kept));
    return JobToJson(next);
}

// Keeps in `job` what `ranks` ranks chose for the job `agreed`: layout and shares, which need not
// be measured again, the context and, as the largest one, the cache.
static void KeepChoices(const Job& agreed, int ranks, Job& job) {
    if (job.tp == 0 && job.pp == 0 && agreed.tp * agreed.pp == ranks) {
        job.tp = agreed.tp;
        job.pp = agreed.pp;
    }
    const bool known = agreed.split.empty() || std::cmp_equal(agreed.split.size(), ranks);
    if (job.split_auto && !agreed.split_auto && known) {
        job.split = agreed.split;
        job.split_auto = false;
    }
    if (!agreed.cache_agreed || job.cache_agreed) return;
    job.ctx = agreed.ctx;
    job.kv_tokens = agreed.kv_tokens;
    job.fits_ctx = false;
    job.cache_agreed = true;
}

static void KeepWires(const Rank* rank, Job& job) {
    if (rank == nullptr) return;
    job.wire = KeptWire(job.wire, rank->wire(), job.device);
    job.prompt_wire = KeptWire(job.prompt_wire, rank->prompt_wire(), job.device);
}

Result<Job> GrownJob(const Job& job, int ranks, int more, const Asked& asked, const Rank& rank) {
    std::vector<int> kept(static_cast<size_t>(ranks + more));
    std::iota(kept.begin(), kept.end(), 0);
    return ReplanJob(job, ranks, kept, &asked, nullptr, rank.identities());
}

Result<int> SpaceFor(int waiting, const Job& job, int ranks, const Asked& asked, const Rank& rank) {
    const auto named = static_cast<int>(backend::DeviceNames(asked.job.device).size());
    const int most = named > 1 ? std::min(waiting, named - ranks) : waiting;
    if (most < 1) {
        return MakeError(
            ErrorCode::kUsage,
            "--device {} names the devices of the first ranks, but none for a rank that joins",
            asked.job.device);
    }
    std::optional<Error> why;
    int room = 0;
    for (int more = 1; more <= most; ++more) {
        const auto cut = [&]() -> Status {
            WEFT_ASSIGN(const Job next, GrownJob(job, ranks, more, asked, rank));
            return CheckCut(next, ranks + more, rank);
        };
        const Status fits = cut();
        if (fits.ok()) room = more;
        if (!fits.ok() && !why.has_value()) why = fits.error();
    }
    if (room > 0) return room;
    return MakeError(why->code, "the model cannot be cut for {} ranks: {}", ranks + 1,
                     why->message);
}

// Compares the files of rank 0 with the files of earlier epochs: a file that was replaced while the
// job runs would change the model in the middle of answers. (The other ranks compare their files
// with rank 0's.)
static Status CheckFiles(const Rank& rank, const RankFiles& before) {
    const auto files = AllFiles(rank.source());
    const auto same = [](const model_files::WeightFile* file, const RankFiles::One& one) {
        FileStamp now = file->opened();
        if (one.partial) now.modified_ns = one.stamp.modified_ns;
        return now.SameContent(one.stamp);
    };
    if (std::ranges::equal(files, before.files, same)) return {};
    if (before.identity.whole) {  // the same bytes may be in new files
        WEFT_ASSIGN(const std::string model, model_files::ReadIdentity(rank.source()));
        WEFT_ASSIGN(const std::string adapters, model_files::ReadAdaptersIdentity(rank.source()));
        if (model == before.identity.model && adapters == before.identity.adapters) return {};
    }
    return MakeError(
        ErrorCode::kDenied,
        "{}: the file {}{}, and rank 0 has to load it again. Start the job again",
        rank.source().name(), rank.job().adapters.empty() ? "" : "or an adapter ",
        before.identity.whole
            ? "has changed since the job began"
            : "was written, fetched or touched since the job began, which has no sum of the former "
              "bytes to compare (its ranks read one copy)");
}

RankFiles FilesOf(const Rank& rank) {
    RankFiles before{{}, rank.identity()};
    for (const model_files::WeightFile* file : AllFiles(rank.source())) {
        before.files.push_back({file->opened(), file->is_partial()});
    }
    return before;
}

Status OpenRank(const Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank,
                const std::optional<RankFiles>& files) {
    std::unique_ptr<model_files::ModelSource> source;
    if (job.feed && cluster.size() > 1) {
        // Every rank takes part, even if it has its weights.
        cluster.SetPhase("load");
        WEFT_ASSIGN(source, OpenStreamed(job, cluster));
    }
    if (rank == nullptr) {
        WEFT_ASSIGN(rank, Rank::Make(job, cluster, std::move(source)));
        if (files && cluster.rank() == 0) WEFT_TRY(CheckFiles(*rank, *files));
    } else {
        rank->TakeCache(job);
    }
    return rank->Enter();
}

Status OpenFirstRank(Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank,
                     std::vector<Recovery>& recoveries) {
    const Status opened = OpenRank(job, cluster, rank);
    if (rank != nullptr) KeepChoices(rank->job(), cluster.size(), job);
    if (opened.ok()) return SendTerms(*rank);
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

// After all ranks have entered the new epoch. devices: the identities of the devices before the
// loss.
static Status EndRecovery(cluster::Cluster& cluster, Rank& rank, const std::string& why,
                          const std::vector<std::string>& devices, Recovery recovery,
                          std::vector<Recovery>& recoveries) {
    if (cluster.rank() != 0) {
        SetLogRank(cluster.rank());
        return {};
    }
    cluster.NoteAllReady();
    WEFT_TRY(SendTerms(rank));
    recovery.text = Line(recovery, why) + DevicesText(devices, rank.identities());
    const bool well = recovery.lost.empty() && !recovery.joined.empty();
    LogLine(well ? LogLevel::kInfo : LogLevel::kWarning, recovery.text);
    recoveries.push_back(std::move(recovery));
    return {};
}

Status Recover(Job& job, cluster::Cluster& cluster, std::unique_ptr<Rank>& rank, Error error,
               std::vector<Recovery>& recoveries, const Asked* asked) {
    if (!cluster.recovers()) return error;
    const int64_t begin_ns = NowNs();
    const int ranks = cluster.size();
    const auto files = rank == nullptr ? std::nullopt : std::optional(FilesOf(*rank));
    std::vector<std::string> devices;
    if (rank != nullptr) devices = rank->identities();
    std::vector<std::string> last_devices = devices;  // of the ranks of the last epoch
    std::vector<int> last_kept;
    // A job that has run has its draft model, too.
    const bool has_draft = asked != nullptr;
    Recovery recovery;
    std::string why;
    for (int attempt = 0; attempt < kMostAttempts || NowNs() - begin_ns < kRetryNs; ++attempt) {
        if (rank != nullptr) rank->LeaveEpoch();
        auto next = cluster.NextEpoch(error, [&](const auto& kept) -> Result<std::string> {
            // (`job` may be older, but it has the measured shares; none if they are even.)
            WEFT_ASSIGN(Job last, JobOf(cluster));
            const int size = cluster.size();
            last_kept = kept;
            KeepChoices(job, size, last);
            const bool same = std::cmp_equal(kept.size(), size) && kept.back() == size - 1;
            if (!same) {
                WEFT_TRY(CheckFreeSpace(rank.get(), cluster, kept));
                WEFT_ASSIGN(last, ReplanJob(last, size, kept, asked, rank.get(), last_devices));
            }
            KeepWires(rank.get(), last);
            last.any_device |= !AreAlike(devices);  // the remaining ranks may be alike
            return JobToJson(last);
        });
        if (!next.ok()) {
            error = next.error();
            break;
        }
        WEFT_ASSIGN(job, JobOf(cluster));
        last_devices = KeepIdentities(last_devices, last_kept);
        // (A measurement needs all ranks.)
        const bool plans_again =
            job.split_auto || ChoosesLayout(job, cluster) || MayLackLinks(job, cluster);
        if (plans_again || (rank != nullptr && !rank->Serves(job))) rank.reset();
        if (why.empty()) why = next->why;
        if (!next->refused.empty()) why = next->refused;
        recovery.joined = next->joined;
        recovery.lost.insert(recovery.lost.end(), next->lost.begin(), next->lost.end());
        Job own = job;
        // (The free memory is what the loaded draft model leaves.)
        if (has_draft) own.draft_bytes = own.draft_token_bytes = 0;
        const Status status = OpenRank(own, cluster, rank, files);
        if (rank != nullptr) KeepChoices(rank->job(), cluster.size(), job);
        if (status.ok()) {
            recovery.epoch = next->epoch;
            recovery.ranks = cluster.size();
            recovery.seconds = SecondsSince(begin_ns);
            return EndRecovery(cluster, *rank, why, devices, std::move(recovery), recoveries);
        }
        error = status.error();
    }
    error = cluster.ReportFailure(std::move(error));
    // A user's request to stop is not a failure; an error without recovery explains itself.
    if (why.empty() || cluster.rank() != 0 || error.code == ErrorCode::kCancelled) return error;
    return MakeError(ErrorCode::kPeerLost, "{}. The job could not continue with {} of {} ranks: {}",
                     why, cluster.size(), ranks, error.message);
}

}  // namespace weft::engine
