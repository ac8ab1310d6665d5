// StepRunner runs a job from rank 0: it starts the ranks, runs steps on all of them, recovers from
// losses of ranks, and ends the job.
//
//     WEFT_ASSIGN(auto runner, StepRunner::Start(cluster_options, job));
//     runner->step() ...                                  // which rows the next step has
//     WEFT_TRY(runner->Run());
//     WEFT_ASSIGN(auto logits, runner->rank().Logits(rows, buffer));
//     WEFT_TRY(runner->Finish());                         // ends all ranks, gathers reports
//
// The caller decides what the steps compute: answers (engine.h), or logits and timings (measure.h).
// Errors: those of the ranks, as Cluster::ReportFailure returns them. A caller that cannot continue
// passes its error to Fail. ClusterOptions::stop ends the work with kCancelled, even with one rank.
// Thread: one caller, the main thread (cluster.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/worker/job_kind.h"
#include "engine/job.h"
#include "engine/rank/rank.h"
#include "engine/recovery.h"
#include "tokenizer/tokenizer.h"

namespace weft::engine {

// Default of Job::ctx for models with a larger context.
inline constexpr int64_t kDefaultContext = 8192;

// Sets job.ctx if it is 0. Reads the model's header.
Status CompleteJob(Job& job);

// Errors: kUsage: `tokens` has an id that the model does not have.
Status CheckVocabulary(std::span<const int32_t> tokens, int64_t vocab);

class StepRunner {
  public:
    // tokenizer: the model's tokenizer, if the caller has already read it; else null.
    static Result<std::unique_ptr<StepRunner>> Start(
        const cluster::ClusterOptions& options, Job job,
        std::unique_ptr<tokenizer::Tokenizer> tokenizer = nullptr);
    ~StepRunner();

    const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
    Rank& rank() { return *rank_; }
    cluster::Cluster& cluster() { return *cluster_; }
    const Job& job() const { return job_; }
    // The current layout.
    const model::Layout& layout() const { return rank_->layout(); }
    // As Rank::SetIdle. Does nothing if there is no rank after a failed recovery.
    void SetIdle(bool idle) {
        if (rank_ != nullptr) rank_->SetIdle(idle);
    }
    // Recoveries, in order.
    std::vector<Recovery>& recoveries() { return recoveries_; }

    // The next step before Run, the last step after it. Run increases its number.
    StepData& step() { return step_; }
    // Runs the step on all ranks. Errors: kCancelled (a stop request); the ranks' errors.
    Status Run();
    // Recovers from the loss of a rank. On success, the ranks are ready again, with empty KV
    // caches. Errors: as engine::Recover; the job has then ended, and there may be no rank().
    Status Recover(const Error& error);
    // PendingJoiners: how many waiting workers (ClusterOptions::elastic) the job can admit between
    // two steps. These workers fit a layout and passed the checks on their hosts (examine.h). The
    // checks run while steps continue; the result is 0 until all workers have answered. The log
    // names rejected workers. Admit starts the new epoch; pass its error to Recover.
    int PendingJoiners();
    Status Admit(int count) { return cluster_->Admit(count); }
    // Ends the job on all ranks because of `error`; returns the cluster's version of the error.
    Error Fail(Error error);
    // Ends the job on all ranks and returns their last reports, for a summary. Does nothing if the
    // job has ended.
    Result<std::vector<RankReport>> Finish();

  private:
    StepRunner() = default;

    std::unique_ptr<cluster::Cluster> cluster_;
    std::unique_ptr<Rank> rank_;
    std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
    Job job_;
    Asked asked_;
    // The last plan for joiners. For `waiting` waiting workers and `ranks` ranks: how many workers
    // can join, and the job with them.
    struct Growth {
        int waiting = 0, ranks = 0;
        int count = 0;
        std::string job;
    };
    Status PlanGrowth(int waiting);
    Growth growth_;
    std::vector<Recovery> recoveries_;
    StepData step_;
    bool over_ = false;
};

// A worker's job: opens its rank, then runs the steps of rank 0 until the job ends.
extern const cluster::JobKind kModelJob;

}  // namespace weft::engine
