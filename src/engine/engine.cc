#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "engine/page_store/rank_pages.h"
#include "engine/rank/running_request.h"
#include "engine/rank/sum_wire.h"

namespace weft::engine {
namespace {

// Period at which an idle loop checks for a lost rank or a stop.
constexpr auto kIdleTurn = std::chrono::milliseconds(50);
// Prompt tokens whose scores are kept: some 10 MB, or 30 MB with 20 likeliest tokens each.
constexpr int64_t kKeptScores = 1 << 17;

// Slots of recurrent state in addition to the sequences' slots. Slots are large.
constexpr int64_t kLeastKept = 2, kMostKept = 8, kMostDraftSlots = 8;

}  // namespace

int64_t KeptStates(const EngineOptions& options) {
    if (!options.prefix_cache) return 0;
    return std::clamp(options.max_seqs, kLeastKept, kMostKept);
}

int64_t StateSlots(const EngineOptions& options) {
    const int64_t drafts = options.draft.on() ? std::min(options.draft.most(), kMostDraftSlots) : 0;
    return options.max_seqs + KeptStates(options) + drafts;
}

Result<std::unique_ptr<Engine>> Engine::Start(const cluster::ClusterOptions& options, Job job,
                                              const EngineOptions& engine_options,
                                              std::unique_ptr<tokenizer::Tokenizer> tokenizer) {
    EngineOptions resolved = engine_options;
    resolved.draft = resolved.draft.Resolved();
    std::unique_ptr<Engine> engine(new Engine(resolved));
    WEFT_TRY(engine->Prepare(job, tokenizer));
    WEFT_ASSIGN(engine->runner_, StepRunner::Start(options, std::move(job), std::move(tokenizer)));
    WEFT_TRY(engine->Open(options.stop));
    return engine;
}

// Sets what answers need of the job: rows with logits, and memory for a draft model on rank 0.
Status Engine::Prepare(Job& job, std::unique_ptr<tokenizer::Tokenizer>& tokenizer) {
    const DraftOptions& draft = options_.draft;
    WEFT_TRY(CheckDraft(draft));
    WEFT_TRY(CompleteJob(job));
    job.kv_tokens = std::max(job.kv_tokens, job.ctx);
    if (options_.max_seqs < 1 || options_.max_seqs > job.step_rows()) {
        return MakeError(
            ErrorCode::kUsage,
            "--max-seqs {}: expected 1 to {}, the most rows of a step (--prefill-chunk; of "
            "weft serve --step-tokens)",
            options_.max_seqs, job.step_rows());
    }
    draft_rows_ =
        std::min(drafts_.most_rows(options_.max_seqs), job.step_rows() - options_.max_seqs);
    if (draft.on() && draft_rows_ < 1) {
        return MakeError(
            ErrorCode::kUsage,
            "draft tokens need rows in a step besides the {} rows of the sequences; "
            "--prefill-chunk (of weft serve --step-tokens) is {}, the KV cache has {} tokens",
            options_.max_seqs, job.chunk, job.cache_tokens());
    }
    generates_ = job.outputs != model::Outputs::kHidden;
    job.max_outputs = options_.max_seqs + draft_rows_;
    job.state_slots = StateSlots(options_);
    job.draft_head = draft.head();
    if (draft.separate_head) job.draft_folder = draft.model;
    if (draft.model.empty()) return {};
    if (!generates_) {
        return MakeError(
            ErrorCode::kUsage,
            "--draft {}: a server of embeddings generates no tokens, so a draft has no use",
            draft.model);
    }
    if (draft.head()) return CheckDraftHead(job);
    return PrepareDraftModel(draft.model, options_.max_seqs, job, tokenizer);
}

// Call it when all ranks are ready.
Status Engine::Open(const std::atomic<bool>* stop) {
    const Job& job = runner_->job();
    hyper_ = rank().hyper();
    context_ = job.ctx;
    adapters_ = static_cast<int32_t>(job.adapters.size());
    embeds_ = rank().has_hidden();
    const std::string& draft = options_.draft.model;
    if (options_.draft.head()) {
        auto head = std::make_unique<DraftHead>(rank());
        head->SetNumber(&runner_->step().number);
        draft_head_ = head.get();
        drafter_ = std::move(head);
    } else if (!draft.empty()) {
        auto model = DraftModel::Open(draft, options_.max_seqs, rank(), stop);
        if (!model.ok()) return runner_->Fail(model.error());
        drafter_ = std::move(*model);
    }
    if (drafter_ != nullptr) drafts_.Use(*drafter_);
    if (options_.max_seqs > 1)
        rank().device()->host_team();  // starts the team's threads before requests come
    scheduler_ = std::make_unique<Scheduler>(
        ScheduleOptions{options_.max_seqs, job.step_rows(), rank().kv_pages(), rank().page_tokens(),
                        options_.prefix_cache && !hyper_.encoder, draft_rows_, rank().state_slots(),
                        KeptStates(options_), hyper_.encoder});
    scheduler_->KeepPages(rank().page_keys());
    prompt_clock_ = PromptClock(PairShare(rank().program(), context_));
    NoteRecoveries();
    NoteLayout();
    Publish();
    return {};
}

Engine::Engine(const EngineOptions& options)
    : options_(options),
      drafts_(options.draft),
      scores_(kKeptScores),
      restarts_(options.max_restarts, options.restart_window_ms) {}

Engine::~Engine() = default;

Status Engine::Check(const Request& request) const {
    WEFT_TRY(CheckSampler(request.sampler));
    if (!request.pooling.empty() && !embeds()) {
        return MakeError(ErrorCode::kUnsupported,
                         "with pipeline stages a server generates either text or embeddings, and "
                         "this one generates text: start one with --embeddings");
    }
    if (request.pooling.empty() && hyper_.encoder) {
        return MakeError(ErrorCode::kUnsupported,
                         "the model is an encoder, which makes embeddings or scores and writes no "
                         "text");
    }
    if (request.pooling.empty() && !generates()) {
        return MakeError(ErrorCode::kUnsupported,
                         "this server generates embeddings only: start one without --embeddings");
    }
    if (request.adapter < 0 || request.adapter > adapters_) {
        return MakeError(ErrorCode::kUsage, "adapter {}: there are {}", request.adapter, adapters_);
    }
    WEFT_TRY(CheckLength(request));
    return CheckVocabulary(request.prompt, hyper_.vocab);
}

bool Engine::Fits(const Request& request) const {
    const bool generates = request.pooling.empty() && request.max_tokens != 0;
    return std::ssize(request.prompt) + (generates ? 1 : 0) <= context_;
}

Status Engine::CheckLength(const Request& request) const {
    const auto tokens = static_cast<int64_t>(request.prompt.size());
    if (tokens == 0) {
        return MakeError(ErrorCode::kUsage, "the prompt has no tokens: give some text");
    }
    if (Fits(request)) return {};
    if (!request.pooling.empty() || request.max_tokens == 0) {
        return MakeError(ErrorCode::kUsage,
                         "the text has {} tokens; at most {} fit the context. Cut it, or start "
                         "with a larger --ctx",
                         tokens, context_);
    }
    return MakeError(ErrorCode::kUsage,
                     "the prompt has {} tokens, and the answer needs at least one more, but the "
                     "context has {} tokens. Shorten the prompt, or start with a larger --ctx",
                     tokens, context_);
}

namespace {

void ForbidEnds(const tokenizer::Tokenizer& tokenizer, Request& request) {
    request.sampler.min_tokens = request.min_tokens;
    request.sampler.ends = request.end_tokens;
    for (int32_t id = 0; id < tokenizer.vocab_size() && !request.ignore_eos; ++id) {
        if (tokenizer.IsEog(id)) request.sampler.ends.push_back(id);
    }
}

}  // namespace

Result<int64_t> Engine::Submit(Request request, std::shared_ptr<Listener> listener) {
    WEFT_TRY(Check(request));
    if (request.min_tokens > 0) ForbidEnds(tokenizer(), request);
    auto active = std::make_unique<RunningRequest>(std::move(request), std::move(listener),
                                                   tokenizer(), NowNs());
    const int64_t room = context_ - static_cast<int64_t>(active->request.prompt.size());
    const int64_t most = active->request.max_tokens;
    active->most = most < 0 ? room : std::min(most, room);
    Sequence& sequence = active->sequence;
    sequence.tokens = active->request.prompt;
    sequence.key = active->request.key;
    sequence.group = active->request.group;
    sequence.limit = active->request.limit;
    sequence.priority = active->request.priority;
    sequence.weight = active->request.weight;
    sequence.adapter = active->request.adapter;
    if (hyper_.token_types > 1) sequence.second = active->request.second;
    sequence.tenant = active->request.tenant;
    sequence.narrow_tokens = NarrowTokens(std::ssize(sequence.tokens));
    const std::vector<Pooling>& pooling = active->request.pooling;
    // The cache has no hidden states of its pages.
    const auto is_last = [](Pooling each) { return each == Pooling::kLast; };
    sequence.cached = active->request.cached && std::ranges::all_of(pooling, is_last);
    const bool scored = active->request.prompt_logprobs >= 0 && sequence.tokens.size() > 1;
    sequence.score_from = scored ? 0 : Sequence::kNotScored;
    if (!pooling.empty()) {
        active->pooler.emplace(pooling, static_cast<int64_t>(sequence.tokens.size()), hyper_.hidden,
                               active->request.pool_from);
    } else {
        active->drafts = drafts_.Begin(sequence.tokens, active->request.sampler);
    }
    const std::lock_guard lock(mutex_);
    if (published_.state == EngineState::kOver) {
        return MakeError(ErrorCode::kPeerLost, "{}", published_.error);
    }
    if ((draining_ && !active->request.goes_on) || stopping_) {
        return MakeError(ErrorCode::kCancelled, "the server is shutting down");
    }
    sequence.id = next_id_++;
    const int64_t id = sequence.id;
    ++waiting_of_[sequence.key];
    waiting_.emplace(id, sequence.key);
    commands_.push_back({id, std::move(active), false, {}});
    commanded_.notify_one();
    return id;
}

void Engine::Cancel(int64_t id) {
    const std::lock_guard lock(mutex_);
    WaitsNoMore(id);
    commands_.push_back({id, nullptr, false, {}});
    commanded_.notify_one();
}

void Engine::StopEarly(int64_t id) {
    const std::lock_guard lock(mutex_);
    commands_.push_back({id, nullptr, true, {}});
    commanded_.notify_one();
}

void Engine::Submit(SlotRequest request) {
    std::unique_lock lock(mutex_);
    if (published_.state == EngineState::kOver || stopping_) {
        lock.unlock();
        request.done(MakeError(ErrorCode::kCancelled, "the server is shutting down"));
        return;
    }
    commands_.push_back({0, nullptr, false, std::move(request)});
    commanded_.notify_one();
}

void Engine::Drain() {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    // A drain request during a recovery does not wait for the lost rank.
    if (published_.state == EngineState::kRecovering) runner_->cluster().RequestStop();
    if (published_.state == EngineState::kServing) published_.state = EngineState::kDraining;
    commanded_.notify_one();
}

void Engine::Stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (published_.state == EngineState::kRecovering) runner_->cluster().RequestStop();
    commanded_.notify_one();
}

EngineStats Engine::stats() const {
    cluster::Membership members = runner_->cluster().Members();
    const std::lock_guard lock(mutex_);
    EngineStats stats = published_;
    stats.schedule.waiting += WaitingCommands();
    stats.members = std::move(members);
    return stats;
}

EngineCounters Engine::counters() const {
    const std::lock_guard lock(mutex_);
    EngineCounters counters = published_;
    counters.schedule.waiting += WaitingCommands();
    return counters;
}

Engine::Waiting Engine::waiting(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto of_key = waiting_of_.find(key);
    return {static_cast<int64_t>(waiting_.size()), of_key == waiting_of_.end() ? 0 : of_key->second,
            static_cast<int64_t>(waiting_of_.size())};
}

// Needs the lock.
void Engine::WaitsNoMore(int64_t id) {
    const auto at = waiting_.find(id);
    if (at == waiting_.end()) return;
    const auto of_key = waiting_of_.find(at->second);
    if (--of_key->second == 0) waiting_of_.erase(of_key);
    waiting_.erase(at);
}

// Number of submitted requests that the loop has not taken. Needs the lock.
int64_t Engine::WaitingCommands() const {
    return std::ranges::count_if(commands_,
                                 [](const Command& command) { return command.added != nullptr; });
}

void Engine::DrainCommands() {
    std::vector<Command> commands;
    {
        const std::lock_guard lock(mutex_);
        published_.schedule.waiting += WaitingCommands();  // until the next step is planned
        commands.swap(commands_);
    }
    for (Command& command : commands) {
        if (command.slot) {
            slots_[command.slot->key].push_back(*std::move(command.slot));
        } else if (command.added != nullptr) {
            working_.prompt_tokens += static_cast<int64_t>(command.added->request.prompt.size());
            scheduler_->Add(&command.added->sequence);
            FindScores(*command.added);
            active_.emplace(command.id, std::move(command.added));
        } else if (const auto it = active_.find(command.id); it != active_.end()) {
            command.well
                ? EndWell(*it->second, "stop")
                : End(*it->second, MakeError(ErrorCode::kCancelled, "the request was cancelled"));
        }
    }
    ReapFinished();
}

// Waits until a command arrives. Recovers from a lost rank at once, not when the next request has
// to wait for it.
Status Engine::WaitForCommands() {
    rank().SetIdle(true);
    {
        std::unique_lock lock(mutex_);
        commanded_.wait_for(lock, kIdleTurn, [&] {
            return !commands_.empty() || stopping_ ||
                   (active_.empty() && (draining_ || !slots_.empty()));
        });
    }
    const net::PeerMonitor* monitor = cluster().monitor();
    if (monitor != nullptr && monitor->Failed()) return monitor->Failure();
    return {};
}

bool Engine::stop_asked() const {
    const std::lock_guard lock(mutex_);
    return stopping_ || draining_;
}

bool Engine::over() const {
    const std::lock_guard lock(mutex_);
    return stopping_ || (draining_ && active_.empty() && slots_.empty() && commands_.empty());
}

Status Engine::Loop(const std::function<bool()>& done) {
    Publish();
    while (!done()) {
        if (cluster().stop_requested()) {
            return EndAll(runner_->Fail(MakeError(ErrorCode::kCancelled, "stopped by the user")));
        }
        if (serving_) cluster().SetPhase("serve");
        DrainCommands();
        WEFT_TRY(GrowIfRequested());
        if (ended()) return {};
        const Status outcome = Turn();
        if (!outcome.ok()) WEFT_TRY(RecoverFromLoss(outcome.error()));
        if (ended()) return {};
        Publish();
    }
    Status completed = CompleteAllSteps();
    if (completed.ok()) completed = KeepPages();
    if (!completed.ok()) return EndAll(runner_->Fail(completed.error()));
    rank().SetIdle(true);
    return {};
}

Status Engine::Run() {
    serving_ = true;
    WEFT_TRY(Loop([this] { return over(); }));
    DrainCommands();  // requests that the loop has not taken end below, too
    for (const auto& [id, active] : active_) {
        End(*active, MakeError(ErrorCode::kCancelled, "the server is shutting down"));
    }
    EndSlots(MakeError(ErrorCode::kCancelled, "the server is shutting down"));
    ReapFinished();
    return {};
}

void Engine::Publish() {
    working_.schedule = scheduler_->stats();
    working_.drafts = drafts_.counts();
    if (rank().pages() != nullptr) working_.kept = rank().pages()->counts();
    working_.max_seqs = options_.max_seqs;
    if (working_.prompt_tokens_left > 0 && active_.empty()) CountPromptsLeft(NowNs());
    const std::lock_guard lock(mutex_);
    working_.state = draining_ ? EngineState::kDraining : EngineState::kServing;
    if (reported_) {
        published_ = working_;
        reported_ = false;
    } else {
        static_cast<EngineCounters&>(published_) = working_;
    }
}

Result<std::vector<RankReport>> Engine::Finish() {
    auto reports = runner_->Finish();
    if (reports.ok() || !stop_asked()) return reports;
    Log(LogLevel::kWarning, "at the end: {}", reports.error().message);
    return std::vector<RankReport>{};
}

}  // namespace weft::engine
