// Engine: rank 0's side of generation. It runs any number of requests at once, step by step.
//
//     WEFT_ASSIGN(auto engine, Engine::Start(cluster_options, job, options));
//     ... other threads: engine->Submit(request, listener), engine->Cancel(id), engine->stats()
//     WEFT_TRY(engine->Run());    // the loop, until Drain() and the last answer, or Stop()
// or, for one request after another:
//     WEFT_ASSIGN(Generation g, engine->Generate(request));
// and at the end:
//     WEFT_TRY(engine->Finish());
//
// Each iteration of the loop accepts new and cancelled requests, gets a step from the scheduler
// (batch/scheduler.h), runs the step on all ranks (runner.h), and draws a token for each sequence
// with a row of logits. A request's answer does not depend on the other requests in the same steps:
// kernels compute the same bits for a row in any batch, and each request has its own sampler.
// Drafts (batch/step_drafts.h): a step may verify drafted tokens. After each row the sampler draws
// a token as it would without a draft, and continues with the next row while the drawn token equals
// the drafted one. With DraftOptions::judged, the sampler instead decides by the drafts'
// distribution (Sampler::Judge). Recovery: the loss of a rank pauses the answers. The remaining
// ranks form the next epoch (recovery.h), the engine recomputes all sequences from their tokens,
// and the answers continue with the same tokens. If recovery fails, every listener and every later
// Submit gets the error. Ranks that join the job (ClusterOptions::elastic) cause the same pause.
//
// engine.cc accepts requests and has the loop, engine_steps.cc makes steps, engine_kept.cc keeps
// and restores pages, engine_output.cc emits tokens, engine_losses.cc recovers from losses,
// generate.cc waits for one answer. Thread: Start, Run, Generate, Finish and the destructor: the
// main thread (cluster.h). Other functions: any thread, unless their comment names one. Listeners
// run on the thread of Run and must not block.
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
#include "engine/batch/prompt_clock.h"
#include "engine/batch/restart_budget.h"
#include "engine/batch/scheduler.h"
#include "engine/batch/step_drafts.h"
#include "engine/drafts/draft_head.h"
#include "engine/page_store/page_store.h"
#include "engine/rank/runner.h"
#include "engine/request.h"
#include "engine/start/score_cache.h"
#include "tokenizer/tokenizer.h"

namespace weft::engine {

struct EngineOptions {
    int64_t max_seqs = 32;
    bool prefix_cache = true;
    int64_t max_restarts = 10;              // most recoveries within any restart_window_ms
    int64_t restart_window_ms = 3'600'000;  // 0: since the start
    DraftOptions draft{};
};

// StateSlots: number of slots of recurrent state, for sequences, the prefix cache and drafts.
// KeptStates: how many of these slots the prefix cache may keep.
int64_t StateSlots(const EngineOptions& options);
int64_t KeptStates(const EngineOptions& options);

// Options for an engine that runs one request at a time, without a limit on recoveries.
EngineOptions OneAtATime(const DraftOptions& draft);

enum class EngineState { kServing, kRecovering, kDraining, kOver };

// Counters that change at every step.
struct EngineCounters {
    ScheduleStats schedule;
    EngineState state = EngineState::kServing;
    // Upper bounds of the histogram of step sizes.
    static constexpr std::array<double, 13> kStepRowBounds{1,   8,    16,   32,   64,   128,  256,
                                                           512, 1024, 2048, 4096, 8192, 16384};

    int64_t steps = 0, step_rows = 0;
    // Number of steps by their rows: entry i counts steps of at most kStepRowBounds[i] rows (and
    // more than the bound before); the last entry counts all larger steps.
    std::array<int64_t, kStepRowBounds.size() + 1> steps_by_rows{};
    int64_t prompt_tokens = 0, generated_tokens = 0;  // of ended and running requests
    int64_t ended = 0, failed = 0, cancelled = 0;
    double step_s = 0;        // time from the start of a step to its end on all ranks
    double plan_s = 0;        // time in the scheduler
    double say_s = 0;         // time of reading logits, sampling, decoding text, and listeners
    double sample_s = 0;      // part of say_s: sampling
    int64_t drawn_ahead = 0;  // tokens drawn for several requests at once, by several threads
    // Prompts that are not computed yet: tokens, and the predicted time of all; -1: unknown.
    int64_t prompt_tokens_left = 0;
    double prompt_seconds_left = -1;
    int64_t last_token_ns = 0;  // NowNs() of the last token; 0: none yet
    int64_t last_step_ns = 0;   // end of the last step of any kind; 0: none yet
    double longest_step_s = 0;  // longest step so far
    DraftCounts drafts;
    PageStoreCounts kept;  // of rank 0
};

struct EngineStats : EngineCounters {
    std::vector<Recovery> recoveries{};  // the most recent, at most kMostRecoveries
    std::vector<int64_t> recovered_s{};  // Unix time at the end of each entry of `recoveries`
    int64_t recovered = 0;               // number of all recoveries
    std::string loss{};                  // during a recovery: the lost ranks, and since when
    bool joining = false;                // during a recovery: hosts join, no rank was lost
    int64_t lost_s = 0;
    cluster::Membership members{};  // current state of all ranks
    std::string error{};            // why the engine ended; "": no error
    int64_t max_seqs = 0;
    model::Layout layout{};
    std::string transport{};          // "none" for a single rank
    std::vector<RankReport> ranks{};  // recent reports, if WantReports was called
    std::vector<double> power_w{};    // watts of each rank's host; -1: unknown

    static constexpr size_t kMostRecoveries = 1000;
};

struct Generation {
    std::string text;
    std::vector<int32_t> tokens;
    int64_t prompt_tokens = 0;
    double prefill_s = 0, decode_s = 0;  // time to the first token, and from the first token to the
                                         // end
    std::string finish;                  // "eos", "length", "stop" or "context"
    int64_t steps = 0;                   // decode steps
    int64_t drafted = 0, accepted = 0;   // drafted tokens that these steps verified, and that the
                                         // sampler accepted
    double prefill_tok_s() const;
    double decode_tok_s() const;     // without the first token, which comes from prefill
    double acceptance() const;       // accepted / drafted; 0 if nothing was drafted
    double tokens_per_step() const;  // after prefill; 0 if there were no steps
};

struct Drawn;

class Engine {
  public:
    // Starts the ranks and loads the model. job.ctx = 0: CompleteJob chooses it. tokenizer: the
    // model's tokenizer; null: Start reads it. A draft model runs only on rank 0's threads.
    static Result<std::unique_ptr<Engine>> Start(
        const cluster::ClusterOptions& cluster, Job job, const EngineOptions& options,
        std::unique_ptr<tokenizer::Tokenizer> tokenizer = nullptr);
    ~Engine();

    // Runs until Drain and the last answer, Stop, or a failure.
    Status Run();
    // Runs one request to its end; call Generate instead of Run, for one request after another.
    // sink: gets each new piece of text and its last token (-1: none); if it returns false, the
    // answer ends after that piece. progress: gets OnPromptRows. Errors: as Submit; the error that
    // ended the request.
    using TextSink = std::function<bool(std::string_view, int32_t)>;
    using ProgressSink = std::function<void(const PromptProgress&)>;
    Result<Generation> Generate(Request request, const TextSink& sink = nullptr,
                                const ProgressSink& progress = nullptr);

    // Checks whether the request can ever run. Errors: as Submit.
    Status Check(const Request& request) const;
    // Whether the prompt fits the context, with one more token if the request generates any.
    bool Fits(const Request& request) const;
    // Queues a request. Returns its number, for Cancel. Errors: kUsage: the request can never run
    // (it is too long, has tokens that the model does not have, or has sampling options out of
    // range). kUnsupported: the job's outputs (Job::outputs) lack what the request needs. After Run
    // has failed: the error of Run.
    Result<int64_t> Submit(Request request, std::shared_ptr<Listener> listener);
    // Number of requests that wait for their first step, cancelled requests excepted: of all keys
    // (all), and of `key` (own); keys: number of keys with such requests.
    struct Waiting {
        int64_t all = 0, own = 0, keys = 0;
    };
    Waiting waiting(const std::string& key) const;
    // Ends the request with kCancelled; its KV pages are free before the next step. Does nothing if
    // it has ended.
    void Cancel(int64_t id);
    // Ends the request successfully with its text so far; Ending::finish is "stop". Does nothing if
    // it has ended.
    void StopEarly(int64_t id);
    // Saves or restores between two steps; the other requests wait meanwhile. Errors reach
    // request.done; kUnsupported: the job has no --slot-save-path.
    void Submit(SlotRequest request);
    // Accepts no more requests; Run returns after the last answer.
    void Drain();
    // Ends all requests now.
    void Stop();

    EngineStats stats() const;
    // Only the counters, which is cheaper than stats().
    EngineCounters counters() const;
    // From now on, for some seconds, the engine requests reports from the ranks once a second
    // (EngineStats::ranks).
    void WantReports() { wanted_ns_.store(NowNs(), std::memory_order_relaxed); }
    const tokenizer::Tokenizer& tokenizer() const { return runner_->tokenizer(); }
    const model::Hyper& hyper() const { return hyper_; }
    int64_t context() const { return context_; }
    // Whether the engine makes embeddings; whether it generates tokens.
    bool embeds() const { return embeds_; }
    bool generates() const { return generates_; }
    // Thread: the thread of Run.
    Rank& rank() { return runner_->rank(); }
    cluster::Cluster& cluster() { return runner_->cluster(); }
    // Ends the job on all ranks and returns their reports. Call it after Run.
    Result<std::vector<RankReport>> Finish();

  private:
    struct RunningRequest;
    struct Command;
    // A step whose logits have not arrived yet, and the sequences of its rows.
    struct InFlightStep {
        struct Row {
            int64_t id;
            int32_t output;  // -1: no logits
            // Rows of the sequence in the step: first row, number of rows, position of the first
            // row.
            int32_t begin, count, position;
            int32_t drafted;                          // number of rows that are drafts
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
    Status KeepPages();
    Status RestorePages();
    Status RunSlots();
    std::optional<SlotRequest> NextSlot();
    Result<SlotRequest::Done> RunSlot(const SlotRequest& request, Status& fault);
    Result<Rank::SlotResult> SaveSlot(const SlotRequest& request, SlotRequest::Done& done);
    Result<Rank::SlotResult> LoadSlot(const SlotRequest& request, SlotRequest::Done& done);
    void EndSlots(const Error& error);
    Status Draft();
    Status ReadAlong();
    void NoteForHead();
    DraftText TextOf(const RunningRequest& active, int64_t tokens) const;
    void NoteStart();
    void NotePromptRows(int64_t begin_ns);
    void CountPromptsLeft(int64_t now_ns);
    void NoteRowRequests(const RunningRequest& active, const PlannedRows& plan);
    void NoteCost(const InFlightStep& in_flight);
    Status EmitStep(const InFlightStep& in_flight);
    void ScorePrompt(RunningRequest& active, const InFlightStep::Row& row);
    void TakeScore(RunningRequest& active, GeneratedToken score);
    void FindScores(RunningRequest& active);
    Status EmitTokens(const InFlightStep& in_flight);
    Status Pool(const InFlightStep& in_flight);
    void NoteEndOfStep(int64_t begin_ns);
    void NoteRecoveries();
    void NoteLayout();
    void EmitRow(RunningRequest& active, const InFlightStep::Row& row);
    bool EmitToken(RunningRequest& active, const LogitsRow& logits, size_t place, bool guessed);
    static Error TooMuchOfMasks(const RunningRequest& active);
    Result<Drawn> Draw(RunningRequest& active, const LogitsRow& logits, size_t place, bool guessed);
    Result<int32_t> DrawAllowed(RunningRequest& active, const LogitsRow& logits);
    bool DrawsAlone(const RunningRequest& active, const InFlightStep::Row& row) const;
    void DrawAhead(const InFlightStep& in_flight);
    // Calls work(i, weights) for each i below `count`, on the host's threads. Each thread has its
    // own weights.
    void OnHostThreads(size_t count, const std::function<void(size_t i, Weights& weights)>& work);
    void EndWell(RunningRequest& active, const std::string& finish);
    void End(RunningRequest& active, const Result<Ending>& ending);
    void ReapFinished();
    Status GrowIfRequested();
    Status RecoverFromLoss(Error error);
    Status StartAgain(Error error, bool joining);
    std::string LimitReached();
    Status FailAll(Error error);
    Status EndAll(Error error);
    Status Survey();
    void Publish();
    bool stop_asked() const;
    bool over() const;
    // Whether FailAll has ended the engine. After a failed recovery, there may be no rank.
    bool ended() const { return working_.state == EngineState::kOver; }
    int64_t WaitingCommands() const;
    void WaitsNoMore(int64_t id);
    bool Leaves(int64_t id) const;

    EngineOptions options_;
    std::unique_ptr<Drafter> drafter_;  // outlives runner_, whose rank counts its progress
    DraftHead* draft_head_ = nullptr;   // drafter_ as a DraftHead; null: another kind of drafter
    std::unique_ptr<StepRunner> runner_;
    model::Hyper hyper_;
    int64_t context_ = 0;
    int64_t draft_rows_ = 0;  // most drafted tokens of a step
    int32_t adapters_ = 0;
    bool embeds_ = false, generates_ = true;
    bool serving_ = false;  // set by Run, which has many requests, perhaps in different phases
    std::unique_ptr<Scheduler> scheduler_;
    PromptClock prompt_clock_;
    std::vector<PromptPart> prompt_parts_, prompts_left_;  // valid in NotePromptRows
    int64_t counted_ns_ = 0;                               // time of the last CountPromptsLeft
    StepDrafts drafts_;
    ScoreCache scores_;
    int64_t scores_seen_ = 0;  // scores_.changes() that all requests have seen
    std::map<int64_t, std::unique_ptr<RunningRequest>> active_;
    std::map<std::string, std::deque<SlotRequest>> slots_;  // to be saved or restored, by key
    std::string slot_key_;                                  // whose slot was the last one
    int64_t slot_ns_ = 0;         // when the next one may begin while sequences run
    std::vector<int64_t> ended_;  // ids of requests to remove after the step
    std::vector<PlannedRows> planned_;
    std::vector<Sequence*> decodes_;             // valid while they are drafted
    std::vector<StepDrafts::Guesser> guessers_;  // valid while they are drafted
    std::vector<DraftText> texts_;               // valid while the drafter reads them
    InFlightStep now_;                           // the step that has just run
    std::deque<InFlightStep> in_flight_;         // only with pipeline stages; oldest first
    std::vector<float> logits_, hidden_;
    std::vector<uint32_t> allowed_;
    Distribution wanted_;
    // Each thread that draws tokens has its own weights, for the log-probabilities of its rows.
    std::vector<Weights> weights_of_part_ = std::vector<Weights>(1);
    MaskBudget masks_;
    EngineStats working_;   // owned by the loop
    bool reported_ = true;  // fields other than the counters have changed
    int losses_ = 0;        // since the last generated token
    RestartBudget restarts_;
    int64_t surveyed_ns_ = 0;
    std::atomic<int64_t> wanted_ns_{0};

    mutable std::mutex mutex_;  // guards all members below
    std::condition_variable commanded_;
    std::vector<Command> commands_;
    // The key of each request that waiting() counts, by id.
    std::unordered_map<int64_t, std::string> waiting_;
    std::unordered_map<std::string, int64_t> waiting_of_;  // number of these requests, by key
    int64_t next_id_ = 1;
    bool draining_ = false, stopping_ = false;
    EngineStats published_;
};

}  // namespace weft::engine
