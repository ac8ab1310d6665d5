#include "train/elastic.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "engine/start/examine.h"
#include "train/data/open.h"
#include "train/lora/lora_source.h"
#include "train/output_folder.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

// Time for a lost rank to restart, or for a rank that an elastic job needs to return.
constexpr int64_t kRejoinMs = 60'000;
// The same if the other ranks can continue without it: a late rank joins again.
constexpr int64_t kElasticRejoinMs = 10'000;

int64_t Ceil(int64_t count, int64_t of) {
    return (count + of - 1) / of;
}

int RanksOfReplica(const TrainJob& job) {
    const TrainerOptions& t = job.trainer;
    return std::max(1, t.tp) * std::max(1, t.pp) * std::max(1, t.cp);
}

}  // namespace

Status FixSize(TrainJob& job, int ranks) {
    if (job.save.folder.empty() || job.save.every == 0) {
        return MakeError(ErrorCode::kUsage,
                         "--elastic needs --output-dir DIR, which all hosts see, and --save-every "
                         "N: when ranks join or leave, training continues from a checkpoint");
    }
    if (job.trainer.verify_model) {
        return MakeError(
            ErrorCode::kUsage,
            "--verify-model does not work with --elastic: the running ranks would wait "
            "while each new worker hashes its copy. Compare the copies before the job "
            "('weft doctor --model'), or leave out one of the two flags");
    }
    TrainerOptions& trainer = job.trainer;
    WEFT_ASSIGN(const TrainLayout layout, MakeTrainLayout(ranks, 0, LayoutWordsOf(trainer)));
    job.elastic = true;
    job.global_batch = trainer.micro_batch * trainer.accumulation * layout.streams();
    if (trainer.grad_dtype == "auto") {
        trainer.grad_dtype = FlagOf(GradientTypeOf(trainer, layout.dp));
    }
    trainer.tp = layout.tp();
    trainer.pp = layout.pp();
    trainer.dp = 0;
    return {};
}

int UsableRanks(const TrainJob& job, int ranks) {
    const int replica = RanksOfReplica(job);
    const int64_t replicas = std::min<int64_t>(ranks / replica, job.global_batch);
    return static_cast<int>(replicas) * replica;
}

Result<TrainJob> Resize(const TrainJob& job, int ranks) {
    const int replica = RanksOfReplica(job);
    if (ranks < replica) {
        return MakeError(ErrorCode::kUsage,
                         "{} rank{} left, but one copy of the model needs {} (--tp {} x --pp {}{})",
                         ranks, ranks == 1 ? " is" : "s are", replica, job.trainer.tp,
                         job.trainer.pp,
                         job.trainer.cp > 1 ? fmt::format(" x --cp {}", job.trainer.cp) : "");
    }
    if (UsableRanks(job, ranks) != ranks) {
        return MakeError(ErrorCode::kUsage,
                         "a batch of {} sequences cannot be shared out over {} ranks, of which {} "
                         "make a replica",
                         job.global_batch, ranks, replica);
    }
    TrainJob next = job;
    TrainerOptions& trainer = next.trainer;
    const int64_t share = Ceil(job.global_batch, ranks / replica);
    trainer.accumulation = Ceil(share, trainer.micro_batch);
    if (trainer.virtual_stages > 1) {
        trainer.accumulation = Ceil(trainer.accumulation, trainer.pp) * trainer.pp;
    }
    return next;
}

Result<std::string> ResizeText(const std::string& job, int ranks) {
    WEFT_ASSIGN(const TrainJob before, TrainJobFromJson(job));
    WEFT_ASSIGN(const TrainJob next, Resize(before, ranks));
    return TrainJobToJson(next);
}

cluster::LinkNeeds LinksOfJob(const std::string& job, int ranks) {
    const auto decoded = TrainJobFromJson(job);
    if (!decoded.ok()) return {};
    const auto layout = MakeTrainLayout(ranks, 0, LayoutWordsOf(decoded->trainer));
    return layout.ok() ? LinksOf(*layout, ranks) : cluster::LinkNeeds();
}

// ---- Growth -------------------------------------------------------------------------------------

Status PlanRecovery(TrainJob& job, int ranks, cluster::ClusterOptions& options) {
    bool shrinks = false;
    if (options.elastic) {
        WEFT_TRY(FixSize(job, ranks));
        options.usable_ranks = [job](int most) { return UsableRanks(job, most); };
        options.replan = [](const std::string& text, int, const std::vector<int>& kept) {
            return ResizeText(text, static_cast<int>(kept.size()));
        };
        shrinks = UsableRanks(job, ranks - 1) > 0;
    }
    const bool recovers = job.save.every > 0 && job.save.max_restarts > 0;
    if (recovers && ranks > 1 && options.launched == nullptr && options.rejoin_ms == 0) {
        // (Without --elastic, the other hosts do not wait for a host that has died.)
        const bool waits = options.elastic || !cluster::NamesHosts(options);
        options.rejoin_ms = shrinks ? kElasticRejoinMs : waits ? kRejoinMs : options.timeout_ms;
    }
    return {};
}

void Growth::SendTerms(const TrainJob& job, const engine::Terms& model,
                       const DataIdentity& data) const {
    const nlohmann::json terms = {{"model", model.identity},
                                  {"fingerprint", model.fingerprint},
                                  {"copy", model.copy},
                                  {"data", JsonOf(data)},
                                  {"folder", FolderToken(job.save.folder)},
                                  {"model_seed", job.trainer.seed}};
    cluster_.SetJoinFingerprint(terms.dump());
}

void LogEpoch(const cluster::EpochInfo& next, int before, int now, const std::string& from) {
    const std::string& why = next.refused.empty() ? next.why : next.refused;
    const LogLevel level = next.lost.empty() ? LogLevel::kInfo : LogLevel::kWarning;
    if (now == before && !next.lost.empty()) {
        Log(level, "{}. Another worker replaces it; training goes on from {}", why, from);
    } else {
        Log(level, "{}. Training goes on with {} rank{} instead of {}, from {}", why, now,
            now == 1 ? "" : "s", before, from);
    }
}

int Growth::Ready(const TrainJob& job) {
    const int waiting = cluster_.PendingJoiners(), ranks = cluster_.size();
    if (waiting == 0) return 0;
    if (waiting != waiting_ || ranks != ranks_) {
        count_ = UsableRanks(job, ranks + waiting) - ranks;
        const auto resized = Resize(job, ranks + std::max(0, count_));
        if (count_ <= 0 || !resized.ok()) {
            cluster_.RejectJoiners(fmt::format(
                "a batch of {} sequences over replicas of {} ranks has no use for {} ranks",
                job.global_batch, RanksOfReplica(job), ranks + 1));
            return 0;
        }
        planned_ = TrainJobToJson(*resized);
        waiting_ = waiting;
        ranks_ = ranks;
    }
    return cluster_.ValidateJoiners(count_, planned_) ? count_ : 0;
}

void Growth::RejectJoiners(int64_t step) {
    cluster_.RejectJoiners(
        fmt::format("the checkpoint of step {} could not be written, so it cannot join now", step));
}

Status ExamineForTraining(const cluster::JoinRequest& request) {
    WEFT_ASSIGN(TrainJob job, TrainJobFromJson(request.job, request.folders));
    TakeDataWords(job);
    const nlohmann::json terms =
        request.terms.empty() ? nlohmann::json::object() : JsonOrDiscarded(request.terms);
    if (!terms.is_object()) return MakeError(ErrorCode::kCorrupt, "the terms of rank 0");
    // (Random weights of a job that resumed have the checkpoint's seed.)
    const nlohmann::json seed = terms.value("model_seed", nlohmann::json());
    if (seed.is_number_unsigned()) job.trainer.seed = seed.get<uint64_t>();
    WEFT_ASSIGN(auto opened, OpenSource(job.trainer));
    WEFT_ASSIGN(const auto source, WithAdapters(std::move(opened), job.trainer.lora));
    const auto text = [&](const char* name) {
        const nlohmann::json value = terms.value(name, nlohmann::json());
        return value.is_string() ? value.get<std::string>() : "";
    };
    engine::Terms model;
    model.identity = text("model");
    model.fingerprint = text("fingerprint");
    model.copy = text("copy");
    WEFT_TRY(engine::CheckCopy(*source, model, "Copy the same files to every host"));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    WEFT_TRY(SetSequence(hyper, job.data.sequence));
    WEFT_ASSIGN(const OpenedData data, OpenData(*source, job.data, hyper.vocab));
    WEFT_ASSIGN(const DataIdentity content, IdentityOf(*source, job.data, data));
    if (const nlohmann::json theirs = terms.value("data", nlohmann::json()); theirs.is_object()) {
        WEFT_ASSIGN(const DataIdentity other, IdentityFrom(theirs));
        const std::string difference = DifferenceOf(content, other, "here", "on rank 0");
        if (!difference.empty()) {
            return MakeError(ErrorCode::kDenied,
                             "{}: the data here are not rank 0's: {}. Copy the same file to every "
                             "host",
                             DataName(job.data), difference);
        }
    }
    const nlohmann::json folder = terms.value("folder", nlohmann::json());
    if (!folder.is_string() || folder == FolderToken(job.save.folder)) return {};
    return MakeError(ErrorCode::kDenied,
                     "{} is another folder on this host than on rank 0's, where the checkpoint is. "
                     "Mount the same file system under that path on every host",
                     job.save.folder);
}

}  // namespace weft::train
