// Engine: rank 0's side of answering. Any number of requests at once, a step after another.
//
//     WEFT_ASSIGN(auto engine, Engine::Start(cluster_options, job, options));
//     ... other threads: engine->Submit(request, listener), engine->Cancel(id), engine->stats()
//     WEFT_TRY(engine->Run());    // the loop, until Drain() and the last answer, or Stop()
// or, for one request after another:
//     WEFT_ASSIGN(Generation g, engine->Generate(request));
// and at the end:
//     WEFT_TRY(engine->Finish());
//
// Each turn of the loop takes in what was submitted and cancelled, asks the scheduler
// (batch/scheduler.h) for a step, runs it on all ranks (runner.h), and draws a token for each
// sequence that has one coming. What a request says does not depend on what else is in its steps:
// the kernels give a row the same bits in any company, and each request has a sampler of its own.
// With drafts (batch/step_drafts.h) a step may check guesses of what comes next: after each row the
// sampler draws what it would have drawn anyway, and goes on while that is what was guessed; or
// it judges guesses that were drawn themselves (DraftOptions::judged).
// A rank that is lost costs a pause: the cluster forms its next epoch (recovery.h), all sequences
// are computed again from their tokens, and the answers go on, to the token the same. Where it
// can't, every listener gets the reason, and so does every later Submit. Ranks that join (elastic)
// are such a pause, too.
//
// engine.cc takes requests in and has the loop, engine_steps.cc makes steps, engine_output.cc says
// what comes out of them, engine_losses.cc gets over losses, generate.cc waits for one answer.
// Thread: Start, Run, Generate, Finish and the destructor: one, the main one (cluster.h). All
// others: any thread. Listeners are called on the thread of Run and must not block.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/batch/mask_budget.h"
#include "engine/batch/restart_budget.h"
#include "engine/batch/scheduler.h"
#include "engine/batch/step_drafts.h"
#include "engine/draft_head.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/score_cache.h"
#include "tokenizer/tokenizer.h"

namespace weft::engine {

struct EngineOptions {
    int64_t max_seqs = 32;
    bool prefix_cache = true;
    int64_t max_restarts = 10;              // losses that are got over within any restart_window_ms
    int64_t restart_window_ms = 3'600'000;  // 0: the whole life
    DraftOptions draft{};
};

// Slots of recurrent state for sequences, for what the prefix cache keeps, and for guesses; of
// these, those that the prefix cache may keep.
int64_t StateSlots(const EngineOptions& options);
int64_t KeptStates(const EngineOptions& options);

// For one request at a time; as many losses are got over as come.
EngineOptions OneAtATime(const DraftOptions& draft);

enum class EngineState { kServing, kRecovering, kDraining, kOver };

// What changes at every step.
struct EngineCounters {
    ScheduleStats schedule;
    EngineState state = EngineState::kServing;
    // Bounds of the sizes that steps are counted by.
    static constexpr std::array<double, 13> kStepRowBounds{1,   8,    16,   32,   64,   128,  256,
                                                           512, 1024, 2048, 4096, 8192, 16384};

    int64_t steps = 0, step_rows = 0;
    // Steps of at most so many rows, and of more than the bound before; the last has no bound.
    std::array<int64_t, kStepRowBounds.size() + 1> steps_by_rows{};
    int64_t prompt_tokens = 0, said_tokens = 0;  // of requests that ended or run
    int64_t ended = 0, failed = 0, cancelled = 0;
    double step_s = 0;          // in steps, all ranks at work
    double plan_s = 0;          // in the scheduler
    double say_s = 0;           // in logits, sampling, text and listeners
    double sample_s = 0;        // of that, in choosing tokens
    int64_t last_token_ns = 0;  // NowNs() of the last token; 0: none yet
    int64_t last_step_ns = 0;   // of the end of the last step, whatever it was for; 0: none yet
    double longest_step_s = 0;  // so far
    DraftCounts drafts;
};

struct EngineStats : EngineCounters {
    std::vector<Recovery> recoveries{};  // the last ones, up to kMostRecoveries
    std::vector<int64_t> recovered_s{};  // when each was over, Unix time
    int64_t recovered = 0;               // all of them
    std::string loss{};                  // while it recovers: what was lost, and since when
    bool joining = false;                // while it recovers: nothing was lost, hosts join
    int64_t lost_s = 0;
    cluster::Membership members{};  // how all ranks are, at this moment
    std::string error{};            // why it is over
    int64_t max_seqs = 0;
    model::Layout layout{};
    std::string transport{};          // "none" of a single rank
    std::vector<RankReport> ranks{};  // as of late, where WantReports was called
    std::vector<double> power_w{};    // of each rank's host; -1: not known

    static constexpr size_t kMostRecoveries = 1000;
};

struct Generation {
    std::string text;
    std::vector<int32_t> tokens;
    int64_t prompt_tokens = 0;
    double prefill_s = 0, decode_s = 0;  // to the first token, and from there to the end
    std::string finish;                  // "eos", "length", "stop" or "context"
    int64_t steps = 0;                   // of decoding
    int64_t drafted = 0, accepted = 0;   // tokens, checked by these steps
    double prefill_tok_s() const;
    double decode_tok_s() const;     // without the first token, which comes out of the prefill
    double acceptance() const;       // of drafted tokens; 0 without any
    double tokens_per_step() const;  // of decoding; 0 without any
};

class Engine {
  public:
    // job.ctx: most tokens of a sequence (0: as CompleteJob has it); job.kv_tokens: of all together
    // (0: ctx); job.chunk: most rows of a step. tokenizer: where it is read already. A draft model
    // runs on rank 0 alone, on its threads.
    static Result<std::unique_ptr<Engine>> Start(
        const cluster::ClusterOptions& cluster, Job job, const EngineOptions& options,
        std::unique_ptr<tokenizer::Tokenizer> tokenizer = nullptr);
    ~Engine();

    // Until Drain and the last answer, Stop, or a failure.
    Status Run();
    // One request, to its end, in place of Run; `sink` gets its text as it is said, and returns
    // false where the answer is to end with it. May be called again. Errors: as Submit's; why the
    // request ended.
    using TextSink = std::function<bool(std::string_view)>;
    Result<Generation> Generate(Request request, const TextSink& sink = nullptr);

    // Whether a request can run at all. Errors: as Submit's.
    Status Check(const Request& request) const;
    // The number of the request, for Cancel. kUsage: it can never run (too long: both numbers are
    // named; tokens that the model does not have; sampling out of range). kUnsupported: the job's
    // outputs lack what it needs. After an error of Run: that error.
    Result<int64_t> Submit(Request request, std::shared_ptr<Listener> listener);
    // Requests that have computed nothing yet, without those that were cancelled: of all keys, and
    // of one; and how many keys have such requests.
    struct Waiting {
        int64_t all = 0, own = 0, keys = 0;
    };
    Waiting waiting(const std::string& key) const;
    // Its pages are free before the next step. Nothing where it has ended.
    void Cancel(int64_t id);
    // Its answer is whole as it is: it ends well, with "stop". Nothing where it has ended.
    void StopEarly(int64_t id);
    // No more requests; Run returns after the last answer.
    void Drain();
    // Ends everything now.
    void Stop();

    EngineStats stats() const;
    // The counters alone: cheap.
    EngineCounters counters() const;
    // Somebody looks: for some seconds, ranks are asked how they are once a second.
    void WantReports() { wanted_ns_.store(NowNs(), std::memory_order_relaxed); }
    const tokenizer::Tokenizer& tokenizer() const { return runner_->tokenizer(); }
    const model::Hyper& hyper() const { return hyper_; }
    int64_t context() const { return context_; }
    // Whether it makes embeddings; whether it says tokens.
    bool embeds() const { return embeds_; }
    bool generates() const { return generates_; }
    // On the thread of Run or before it.
    Rank& rank() { return runner_->rank(); }
    cluster::Cluster& cluster() { return runner_->cluster(); }
    // Ends the job on all ranks and gathers their reports. After Run.
    Result<std::vector<RankReport>> Finish();

  private:
    struct RunningRequest;
    struct Command;
    // A step of which the logits are to come, and whose they are.
    struct InFlightStep {
        struct Row {
            int64_t id;
            int32_t output;                           // -1: no logits
            int32_t begin, count, position;           // of its rows in the step
            int32_t drafted;                          // of its rows
            int32_t scores, score_begin, score_rows;  // see PlannedRows
        };
        StepData step;
        std::vector<Row> rows;
        int64_t begin_ns = 0;
        bool decodes = false;  // all rows have logits
    };
    explicit Engine(const EngineOptions& options);
    Status Prepare(Job& job, std::unique_ptr<tokenizer::Tokenizer>& tokenizer);
    Status Open(const std::atomic<bool>* stop);
    Status CheckLength(const Request& request) const;
    void DrainCommands();
    Status WaitForCommands();
    Status Loop(const std::function<bool()>& done);
    Status Turn();
    Status RunStep();
    Status RunPipelined(bool work);
    int64_t StepsAtOnce();
    Result<InFlightStep> CompleteStep();
    Status CompleteAllSteps();
    Status Draft();
    Status ReadAlong();
    void NoteForHead();
    DraftText TextOf(const RunningRequest& active, int64_t tokens) const;
    void NoteStart();
    void NoteAsks(const RunningRequest& active, const PlannedRows& plan);
    void NoteCost(const InFlightStep& in_flight);
    Status EmitStep(const InFlightStep& in_flight);
    void ScorePrompt(RunningRequest& active, const InFlightStep::Row& row);
    void TakeScore(RunningRequest& active, SaidToken score);
    void FindScores(RunningRequest& active);
    Status EmitTokens(const InFlightStep& in_flight);
    Status Pool(const InFlightStep& in_flight);
    void NoteEndOfStep(int64_t begin_ns);
    void NoteRecoveries();
    void NoteLayout();
    void EmitRow(RunningRequest& active, const InFlightStep::Row& row);
    bool EmitToken(RunningRequest& active, const LogitsRow& logits, size_t place, bool guessed);
    static Error TooMuchOfMasks(const RunningRequest& active);
    Result<Verdict> Draw(RunningRequest& active, const LogitsRow& logits, size_t place,
                         bool guessed);
    void EndWell(RunningRequest& active, const std::string& finish);
    void End(RunningRequest& active, const Result<Ending>& ending);
    void ReapFinished();
    Status GrowIfAsked();
    Status RecoverFromLoss(Error error);
    Status StartAgain(Error error, bool joining);
    std::string LimitReached();
    Status FailAll(Error error);
    Status EndAll(Error error);
    Status Survey();
    void Publish();
    bool stop_asked() const;
    bool over() const;
    int64_t WaitingCommands() const;
    void WaitsNoMore(int64_t id);
    bool Leaves(int64_t id) const;

    EngineOptions options_;
    std::unique_ptr<Drafter> drafter_;  // its work is progress of the rank: it outlives it
    DraftHead* draft_head_ = nullptr;   // drafter_, where it is one
    std::unique_ptr<StepRunner> runner_;
    model::Hyper hyper_;
    int64_t context_ = 0;
    int64_t draft_rows_ = 0;  // most guesses of a step
    int32_t adapters_ = 0;
    bool embeds_ = false, generates_ = true;
    bool serving_ = false;  // many requests: no phase of one is that of all
    std::unique_ptr<Scheduler> scheduler_;
    StepDrafts drafts_;
    ScoreCache scores_;
    int64_t scores_seen_ = 0;  // changes of it that all requests have seen
    std::map<int64_t, std::unique_ptr<RunningRequest>> active_;
    std::vector<int64_t> ended_;  // swept after the step
    std::vector<PlannedRows> planned_;
    std::vector<Sequence*> decodes_;             // while they are drafted
    std::vector<StepDrafts::Guesser> guessers_;  // while they are drafted
    std::vector<DraftText> texts_;               // while they are read along
    InFlightStep now_;                           // of the step that has just run
    std::deque<InFlightStep> in_flight_;         // with pipeline stages, the oldest first
    std::vector<float> logits_, hidden_;
    std::vector<uint32_t> allowed_;
    Distribution wanted_;
    MaskBudget masks_;
    EngineStats working_;   // the loop's own
    bool reported_ = true;  // more of it than the counters has changed
    int losses_ = 0;        // since the last token
    RestartBudget restarts_;
    int64_t surveyed_ns_ = 0;
    std::atomic<int64_t> wanted_ns_{0};

    mutable std::mutex mutex_;  // of all below
    std::condition_variable commanded_;
    std::vector<Command> commands_;
    std::unordered_map<int64_t, std::string> waiting_;  // keys, by id: see waiting()
    std::unordered_map<std::string, int64_t> waiting_of_;  // how many, by key
    int64_t next_id_ = 1;
    bool draining_ = false, stopping_ = false;
    EngineStats published_;
};

}  // namespace weft::engine
