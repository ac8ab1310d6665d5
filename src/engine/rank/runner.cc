#include "engine/rank/runner.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/rank/device_options.h"
#include "engine/start/examine.h"
#include "engine/start/layout_choice.h"
#include "model_files/read_tokenizer.h"

namespace weft::engine {
namespace {

Status WorkOnModel(cluster::Cluster& cluster) {
    WEFT_ASSIGN(Job job, JobOf(cluster));
    std::unique_ptr<Rank> rank;
    std::vector<Recovery> recoveries;
    Status status = OpenRank(job, cluster, rank);
    if (status.ok()) status = RunWorker(*rank);
    while (!status.ok()) {
        // A process whose device failed ends; the others continue without it, or replace it.
        if (rank != nullptr && !rank->device_status().ok()) {
            return WithDevice(cluster, rank->device_status(), status.error());
        }
        WEFT_TRY(Recover(job, cluster, rank, status.error(), recoveries));
        status = RunWorker(*rank);
    }
    auto reports = rank->GatherReports();
    return reports.ok() ? Status() : Status(reports.error());
}

}  // namespace

Status CompleteJob(Job& job) {
    if (job.ctx > 0) return {};
    WEFT_ASSIGN(const auto source, model_files::OpenModel(job.model));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    job.ctx = std::min(hyper.context, kDefaultContext);
    return {};
}

Status CheckVocabulary(std::span<const int32_t> tokens, int64_t vocab) {
    for (const int32_t token : tokens) {
        if (token >= 0 && token < vocab) continue;
        return MakeError(ErrorCode::kUsage, "token {} is not in the vocabulary (0 to {})", token,
                         vocab - 1);
    }
    return {};
}

Result<std::unique_ptr<StepRunner>> StepRunner::Start(
    const cluster::ClusterOptions& options, Job job,
    std::unique_ptr<tokenizer::Tokenizer> tokenizer) {
    WEFT_TRY(cluster::CheckOptions(options));
    WEFT_TRY(CheckAdapters(job));
    WEFT_TRY(CompleteJob(job));
    std::unique_ptr<StepRunner> runner(new StepRunner());
    runner->over_ = true;  // until all ranks are there
    cluster::ClusterOptions where = options;
    where.replan = ReplanText;
    if (cluster::NamesHosts(options) || options.launched != nullptr) {
        where.links_of = LinksOf;
        where.names_layouts = true;
    }
    WEFT_ASSIGN(runner->cluster_, cluster::Cluster::Launch(where, JobToJson(job)));
    runner->asked_ = {job, cluster::RanksOf(options)};
    runner->job_ = std::move(job);
    if (runner->cluster_->size() != runner->asked_.ranks) {
        WEFT_ASSIGN(runner->job_, JobOf(*runner->cluster_));
    }
    WEFT_TRY(OpenFirstRank(runner->job_, *runner->cluster_, runner->rank_, runner->recoveries_));
    // A host that returns gets the chosen layout.
    const Job& chosen = runner->job_;
    Asked& asked = runner->asked_;
    if (asked.job.tp == 0 && asked.job.pp == 0 && chosen.tp * chosen.pp == asked.ranks) {
        asked.job.tp = chosen.tp;
        asked.job.pp = chosen.pp;
    }
    runner->tokenizer_ = std::move(tokenizer);
    if (runner->tokenizer_ == nullptr) {
        auto loaded = model_files::LoadTokenizer(runner->rank_->source());
        if (!loaded.ok()) return runner->Fail(loaded.error());
        runner->tokenizer_ = std::move(loaded).value();
    }
    runner->rank_->SetIdle(true);
    runner->over_ = false;
    return runner;
}

StepRunner::~StepRunner() {
    // After an error the cluster has its verdict; otherwise this message ends the ranks.
    if (!over_) [[maybe_unused]]
        auto ignored = Finish();
    rank_.reset();
}

Status StepRunner::Run() {
    if (cluster_->stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    rank_->SetIdle(false);
    return rank_->Run(step_);
}

Status StepRunner::Recover(const Error& error) {
    rank_->SetIdle(true);
    if (!rank_->device_status().ok()) return Fail(error);
    const Status recovered = engine::Recover(job_, *cluster_, rank_, error, recoveries_, &asked_);
    over_ = !recovered.ok();
    growth_ = {};
    return recovered;
}

int StepRunner::PendingJoiners() {
    const int waiting = cluster_->PendingJoiners();
    if (waiting == 0) return 0;
    if (growth_.waiting != waiting || growth_.ranks != cluster_->size()) {
        const Status planned = PlanGrowth(waiting);
        if (!planned.ok()) {
            cluster_->RejectJoiners(planned.error().message);
            return 0;
        }
    }
    return cluster_->ValidateJoiners(growth_.count, growth_.job) ? growth_.count : 0;
}

Status StepRunner::PlanGrowth(int waiting) {
    const int ranks = cluster_->size();
    WEFT_ASSIGN(const int count, SpaceFor(waiting, job_, ranks, asked_, *rank_));
    WEFT_ASSIGN(const Job job, GrownJob(job_, ranks, count, asked_, *rank_));
    growth_ = {waiting, ranks, count, JobToJson(job)};
    return {};
}

Error StepRunner::Fail(Error error) {
    over_ = true;
    if (rank_ == nullptr) return cluster_->ReportFailure(std::move(error));
    SetIdle(true);
    return cluster_->ReportFailure(WithDevice(*cluster_, rank_->device_status(), std::move(error)));
}

Result<std::vector<RankReport>> StepRunner::Finish() {
    if (std::exchange(over_, true)) return std::vector<RankReport>{};
    auto reports = EndJob(step_.number + 1, *cluster_, rank_);
    if (reports.ok()) return reports;
    const Error& error = reports.error();
    // With recovery, the results are complete by now, so a lost rank is only a warning.
    if (!cluster_->recovers() || error.code != ErrorCode::kPeerLost || rank_ == nullptr) {
        return error;
    }
    Log(LogLevel::kWarning, "at the end: {}", error.message);
    return std::vector<RankReport>{rank_->Report()};
}

const cluster::JobKind kModelJob{
    .name = kJobKind, .activity = "inference", .work = WorkOnModel, .examine = Examine};

}  // namespace weft::engine
