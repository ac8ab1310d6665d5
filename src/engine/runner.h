// StepRunner: rank 0's hold on a job: starts the ranks, runs step after step on all of them, gets
// over losses, ends the job.
//
//     WEFT_ASSIGN(auto runner, StepRunner::Start(cluster_options, job));
//     runner->step() ...                                  // which rows the next step has
//     WEFT_TRY(runner->Run());
//     WEFT_ASSIGN(auto logits, runner->rank().Logits(rows, buffer));
//     WEFT_TRY(runner->Finish());                         // ends all ranks, gathers reports
//
// What decides on the steps sits on top: answers (engine.h), logits and timings (measure.h).
// Errors: those of the ranks, worded by the cluster, once: who gives up takes them to Fail.
// ClusterOptions::stop ends what runs with kCancelled, with one rank, too.
// Thread: one caller, the main thread (cluster.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/job_kind.h"
#include "engine/job.h"
#include "engine/rank.h"
#include "engine/recovery.h"
#include "tokenizer/tokenizer.h"

namespace weft::engine {

// Most tokens of a sequence where nothing is asked for and the model could take more.
inline constexpr int64_t kDefaultContext = 8192;

// Fills in what depends on the model: the context, where the job names none. Reads the header.
Status CompleteJob(Job& job);

// Refuses ids that a model does not have. kUsage.
Status CheckVocabulary(std::span<const int32_t> tokens, int64_t vocab);

class StepRunner {
  public:
    // tokenizer: the model's, where the caller has read it already.
    static Result<std::unique_ptr<StepRunner>> Start(
        const cluster::ClusterOptions& options, Job job,
        std::unique_ptr<tokenizer::Tokenizer> tokenizer = nullptr);
    ~StepRunner();

    const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
    Rank& rank() { return *rank_; }
    cluster::Cluster& cluster() { return *cluster_; }
    const Job& job() const { return job_; }
    // Of the ranks as they are now.
    const model::Layout& layout() const { return rank_->layout(); }
    // Losses that were got over, in order.
    std::vector<Recovery>& recoveries() { return recoveries_; }

    // The step that runs next, or ran last. Its number grows from one to the next.
    StepData& step() { return step_; }
    // Runs it on all ranks. kCancelled: the user asked to stop.
    Status Run();
    // Gets over a loss: the ranks are ready again, with empty KV caches. Errors: as
    // engine::Recover's, and the job is over.
    Status Recover(const Error& error);
    // Where workers wait to join (ClusterOptions::elastic), between two steps: how many there is
    // room for, and that could be ranks, as far as they and their hosts can tell. They are asked
    // while steps go on: 0 until all have said so. The others are told of in the log. Then Admit;
    // its error goes to Recover.
    int PendingJoiners();
    Status Admit(int count) { return cluster_->Admit(count); }
    // The job is over for that reason on all ranks; the cluster's words for it.
    Error Fail(Error error);
    // Ends the job on all ranks and gathers their reports (those before the end, for a summary).
    // Nothing where it is over already.
    Result<std::vector<RankReport>> Finish();

  private:
    StepRunner() = default;

    std::unique_ptr<cluster::Cluster> cluster_;
    std::unique_ptr<Rank> rank_;
    std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
    Job job_;
    Asked asked_;
    // The last plan for newcomers: for how many of those that waited, beside so many ranks.
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

// A worker opens its rank, then runs the steps of rank 0 to the end of the job.
extern const cluster::JobKind kModelJob;

}  // namespace weft::engine
