// BatchEngine: rank 0's side of serving. Many requests at once, a step after another.
//
//     WEFT_ASSIGN(auto engine, BatchEngine::Start(cluster_options, job, options));
//     ... other threads: engine->Submit(request, listener), engine->Cancel(id), engine->stats()
//     WEFT_TRY(engine->Run());    // the loop, until Drain() and the last answer, or Stop()
//
// Each turn of the loop takes in what was submitted and cancelled, asks the scheduler (scheduler.h)
// for a step, runs it on all ranks, and draws a token for each sequence that has one coming. What a
// request says does not depend on what else is in its steps: the kernels give a row the same bits
// in any company, and each request has a sampler of its own.
// With look-ups (step_drafts.h) a step may check guesses of what comes next: after each row the
// sampler draws what it would have drawn anyway, and goes on as long as that is what was guessed.
// A rank that is lost costs a pause: the cluster forms its next epoch (recovery.h), all sequences
// are computed again from their tokens, and the answers go on, to the token the same. Where it
// can't, every listener gets the reason, and so does every later Submit.
//
// Thread: Start, Run and the destructor: one thread, the main one (cluster.h). All others: any
// thread. Listeners are called on the thread of Run and must not block.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/batch/mask_budget.h"
#include "engine/batch/pooling.h"
#include "engine/batch/restart_budget.h"
#include "engine/batch/scheduler.h"
#include "engine/batch/step_drafts.h"
#include "engine/job.h"
#include "engine/rank.h"
#include "engine/recovery.h"
#include "engine/sampler.h"
#include "grammar/matcher.h"
#include "tokenizer/tokenizer.h"

namespace weft::engine {

struct BatchOptions {
    int64_t max_seqs = 32;
    bool prefix_cache = true;
    int64_t max_restarts = 10;              // losses that are got over within any restart_window_ms
    int64_t restart_window_ms = 3'600'000;  // 0: the whole life
    DraftOptions draft{};       // look-ups only
};

struct BatchRequest {
    std::vector<int32_t> prompt;
    int64_t max_tokens = -1;  // -1: to the end of the context
    bool ignore_eos = false;
    std::vector<std::string> stop{};
    SamplerOptions sampler{};
    int logprobs = -1;  // how many of the likeliest tokens are reported beside each; -1: nothing is
    std::string key{};  // see Sequence
    int priority = 0;
    double weight = 1;
    bool cached = true;
    std::string tenant{};       // who shares a prefix cache: never with another's texts
    int32_t adapter = 0;        // of the job's, from 1; 0: the model alone
    bool show_special = false;  // special tokens are text, too
    // What the answer must look like; it ends where nothing more may follow. With `constrain_after`
    // only what comes after that text has to.
    std::optional<grammar::Matcher> matcher{};
    std::string constrain_after{};
    // An embedding of the prompt in place of an answer: only `prompt`, `adapter`, `key`,
    // `priority`, `weight`, `tenant` and `cached` count.
    std::optional<Pooling> pooling{};
    // Part of something that was begun before Drain: it may still come.
    bool goes_on = false;
};

struct TokenChance {
    int32_t id = 0;
    float logprob =
        0;  // natural logarithm of the model's own probability, before any sampling rule
};

// A token that was said.
struct SaidToken {
    TokenChance chance;
    std::vector<TokenChance> best{};  // the likeliest, best first, as many as were asked for
};

struct Ending {
    std::string finish;  // "eos", "length", "stop", "context"; "embedding"
    int64_t prompt_tokens = 0, cached_tokens = 0, said_tokens = 0;
    double queue_s = 0, first_token_s = 0, total_s = 0;  // since Submit
    std::string stop_text{};                             // of "stop": which one it was
};

// Who asked. Called on the engine's thread; must not block.
class Listener {
  public:
    virtual ~Listener() = default;
    // A token was said, and this text is new (whole code points; it may be empty, or belong to
    // tokens before, which stop strings held back).
    virtual void OnToken(const SaidToken& token, std::string_view text) = 0;
    // What pooling made of the prompt, of length 1; before OnEnd.
    virtual void OnEmbedding(std::vector<float>) {}
    // The last call. `rest`: text that was held back. kCancelled: Cancel was called.
    virtual void OnEnd(std::string_view rest, const Result<Ending>& ending) = 0;
};

enum class BatchState { kServing, kRecovering, kDraining, kOver };

// What changes at every step.
struct BatchCounters {
    ScheduleStats schedule;
    BatchState state = BatchState::kServing;
    int64_t steps = 0, step_rows = 0;
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

struct BatchStats : BatchCounters {
    std::vector<Recovery> recoveries{};  // the last ones, up to kMostRecoveries
    std::vector<int64_t> recovered_s{};  // when each was over, Unix time
    int64_t recovered = 0;               // all of them
    std::string loss{};                  // while it recovers: what was lost, and since when
    int64_t lost_s = 0;
    std::vector<int> lost{};  // while it recovers: the ranks, by the numbers of `ranks`
    std::string error{};  // why it is over
    int64_t max_seqs = 0;
    model::Layout layout{};
    std::string transport{};          // "none" of a single rank
    std::vector<RankReport> ranks{};  // as of late, where WantReports was called
    std::vector<double> power_w{};    // of each rank's host; -1: not known

    static constexpr size_t kMostRecoveries = 1000;
};

class BatchEngine {
  public:
    // job.ctx: most tokens of a sequence (0: the model's context, at most 4096); job.kv_tokens: of
    // all together (0: ctx); job.chunk: most rows of a step. tokenizer: where it is read already.
    static Result<std::unique_ptr<BatchEngine>> Start(
        const cluster::ClusterOptions& cluster, Job job, const BatchOptions& options,
        std::unique_ptr<tokenizer::Tokenizer> tokenizer = nullptr);
    ~BatchEngine();

    // Until Drain and the last answer, Stop, or a failure.
    Status Run();

    // Whether a request can run at all. Errors: as Submit's.
    Status Check(const BatchRequest& request) const;
    // The number of the request, for Cancel. kUsage: it can never run (too long: both numbers are
    // named; tokens that the model does not have; sampling out of range). kUnsupported: the job's
    // outputs lack what it needs. After an error of Run:
    // that error.
    Result<int64_t> Submit(BatchRequest request, std::shared_ptr<Listener> listener);
    // Its pages are free before the next step. Nothing where it has ended.
    void Cancel(int64_t id);
    // Its answer is whole as it is: it ends well, with "stop". Nothing where it has ended.
    void Conclude(int64_t id);
    // No more requests; Run returns after the last answer.
    void Drain();
    // Ends everything now.
    void Stop();

    BatchStats stats() const;
    // The counters alone: cheap.
    BatchCounters counters() const;
    // Somebody looks: for some seconds, ranks are asked how they are once a second.
    void WantReports() { wanted_ns_.store(NowNs(), std::memory_order_relaxed); }
    const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
    const model::Hyper& hyper() const { return hyper_; }
    int64_t context() const { return context_; }
    // Whether it makes embeddings; whether it says tokens.
    bool embeds() const { return embeds_; }
    bool generates() const { return job_.outputs != model::Outputs::kHidden; }
    // On the thread of Run or before it.
    Rank& rank() { return *rank_; }
    cluster::Cluster& cluster() { return *cluster_; }
    // Ends the job on all ranks and gathers their reports. After Run.
    Result<std::vector<RankReport>> Finish();

  private:
    struct Active;
    struct Order;
    // A step of which the logits are to come, and whose they are.
    struct Flight {
        struct Row {
            int64_t id;
            int32_t output;                  // -1: no logits
            int32_t begin, count, position;  // of its rows in the step
            int32_t drafted;                 // of its rows
        };
        StepData step;
        std::vector<Row> rows;
        int64_t begin_ns = 0;
        bool decodes = false;  // all rows have logits
    };
    explicit BatchEngine(const BatchOptions& options);
    void TakeOrders();
    Status WaitForOrders();
    Status Turn();
    Status RunStep();
    Status RunPipelined(bool work);
    int64_t StepsAtOnce() const;
    Result<Flight> Land();
    Status LandAll();
    void Draft();
    void NoteStart();
    void NoteCost(const Flight& flight);
    Status SayAll(const Flight& flight);
    Status SayLogits(const Flight& flight);
    Status Pool(const Flight& flight);
    void NoteEndOfStep(int64_t begin_ns);
    void NoteRecoveries();
    void NoteLost(const std::vector<int>& ranks);
    void EndWell(Active& active, const std::string& finish);
    void SayRows(Active& active, const Flight::Row& row, std::span<const float> logits);
    void Say(Active& active, std::span<const float> logits);
    static Error TooMuchOfMasks(const Active& active);
    Result<int32_t> Draw(Active& active, std::span<const float> logits);
    void End(Active& active, const Result<Ending>& ending);
    void Sweep();
    Status GetOver(Error error);
    Status StartAgain(Error error);
    std::string LimitReached();
    Status FailAll(Error error);
    Status EndAll(Error error);
    Status Survey();
    void Publish();
    bool stop_asked() const;
    bool over() const;
    int64_t WaitingOrders() const;
    bool Leaves(int64_t id) const;

    BatchOptions options_;
    std::unique_ptr<cluster::Cluster> cluster_;
    std::unique_ptr<Rank> rank_;
    std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
    model::Hyper hyper_;
    Job job_;
    int64_t context_ = 0;
    bool embeds_ = false;
    std::unique_ptr<Scheduler> scheduler_;
    StepDrafts drafts_;
    std::map<int64_t, std::unique_ptr<Active>> active_;
    std::vector<int64_t> ended_;  // swept after the step
    StepData step_;
    std::vector<PlannedRows> planned_;
    std::vector<Sequence*> decodes_;             // while they are drafted
    std::vector<StepDrafts::Guesser> guessers_;  // while they are drafted
    Flight now_;                                 // of the step that has just run
    std::deque<Flight> flying_;                  // with pipeline stages, the oldest first
    std::vector<float> logits_, hidden_;
    std::vector<uint32_t> allowed_;
    MaskBudget masks_;
    BatchStats working_;    // the loop's own
    bool reported_ = true;  // more of it than the counters has changed
    int losses_ = 0;        // since the last token
    RestartBudget restarts_;
    bool finished_ = false;
    int64_t surveyed_ns_ = 0;
    std::atomic<int64_t> wanted_ns_{0};

    mutable std::mutex mutex_;  // of all below
    std::condition_variable ordered_;
    std::vector<Order> orders_;
    int64_t next_id_ = 1;
    bool draining_ = false, stopping_ = false;
    BatchStats published_;
};

}  // namespace weft::engine
