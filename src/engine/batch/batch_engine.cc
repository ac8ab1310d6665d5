#include "engine/batch/batch_engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "engine/stop.h"
#include "model_files/read_tokenizer.h"
#include "tokenizer/stream.h"

namespace weft::engine {
namespace {

constexpr int64_t kDefaultContext = 4096;
// How often an idle loop looks for a lost rank or a stop.
constexpr auto kIdleTurn = std::chrono::milliseconds(50);
// Reports are gathered so often, for so long after somebody has looked.
constexpr int64_t kSurveyNs = 1'000'000'000;
constexpr int64_t kWantedNs = 10'000'000'000;
// Losses in a row, without one token between, that are got over.
constexpr int kMostLosses = 5;

double Seconds(int64_t begin_ns, int64_t end_ns) {
    return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

// Logarithms of probabilities: the token's, and the `count` likeliest.
SaidToken Chances(std::span<const float> logits, int32_t token, int count) {
    const float most = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit - most));
    const auto log_sum = static_cast<float>(std::log(sum)) + most;
    SaidToken said{{token, logits[static_cast<size_t>(token)] - log_sum}, {}};
    if (count <= 0) return said;
    std::vector<int32_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    const auto better = [&](int32_t a, int32_t b) {
        const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
        return x != y ? x > y : a < b;
    };
    const auto kept = std::min(order.size(), static_cast<size_t>(count));
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept), order.end(),
                      better);
    for (size_t i = 0; i < kept; ++i) {
        said.best.push_back({order[i], logits[static_cast<size_t>(order[i])] - log_sum});
    }
    return said;
}

}  // namespace

// A request that waits or runs.
struct BatchEngine::Active {
    Active(BatchRequest r, std::shared_ptr<Listener> l, const tokenizer::Tokenizer& tokenizer,
           int64_t submitted)
        : request(std::move(r)),
          listener(std::move(l)),
          sampler(request.sampler),
          decoder(tokenizer, !request.show_special),
          stop(request.stop),
          submitted_ns(submitted) {}

    // Looks for the text after which the answer is constrained.
    void FollowMarker(std::string_view text) {
        std::string& marker = request.constrain_after;
        if (marker.empty()) return;
        tail += text;
        if (tail.find(marker) != std::string::npos) return marker.clear();
        if (tail.size() > marker.size()) tail.erase(0, tail.size() - marker.size());
    }

    BatchRequest request;
    std::shared_ptr<Listener> listener;
    Sampler sampler;
    tokenizer::StreamDecoder decoder;
    StopMatcher stop;
    // Whether the next token must follow the matcher.
    bool constrained() const { return request.matcher && request.constrain_after.empty(); }

    Sequence sequence;
    std::optional<Lookup> lookup;  // where answers are drafted
    std::optional<Pooler> pooler;
    int64_t most = 0;  // tokens to say
    int64_t said = 0;
    int64_t mask_steps = 0;  // see MaskBudget
    int64_t submitted_ns = 0, started_ns = 0, first_ns = 0;
    bool over = false;
    std::string tail;  // of the text, while a marker is looked for
};

struct BatchEngine::Order {
    int64_t id = 0;
    std::unique_ptr<Active> added;  // null: the request is to end
    bool well = false;              // not cancelled
};

Result<std::unique_ptr<BatchEngine>> BatchEngine::Start(
    const cluster::ClusterOptions& options, Job job, const BatchOptions& batch,
    std::unique_ptr<tokenizer::Tokenizer> tokenizer) {
    WEFT_TRY(cluster::CheckOptions(options));
    WEFT_TRY(CheckAdapters(job));
    if (job.ctx == 0) {
        WEFT_ASSIGN(const auto source, model_files::OpenModel(job.model));
        WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
        job.ctx = std::min(hyper.context, kDefaultContext);
    }
    job.kv_tokens = std::max(job.kv_tokens, job.ctx);
    if (batch.max_seqs < 1 || batch.max_seqs > job.step_rows()) {
        return MakeError(ErrorCode::kUsage,
                         "--max-seqs {}: expected 1 to {}, the most rows of a step (--chunk)",
                         batch.max_seqs, job.step_rows());
    }
    std::unique_ptr<BatchEngine> engine(new BatchEngine(batch));
    const int64_t draft_rows =
        std::min(engine->drafts_.most_rows(), job.step_rows() - batch.max_seqs);
    if (batch.draft.on() && draft_rows < 1) {
        return MakeError(ErrorCode::kUsage,
                         "--lookup: a step of {} rows (--step-tokens) has none left for guesses "
                         "beside those of {} sequences (--max-seqs)",
                         job.step_rows(), batch.max_seqs);
    }
    job.max_outputs = batch.max_seqs + draft_rows;
    WEFT_ASSIGN(engine->cluster_, cluster::Cluster::Launch(options, JobToJson(job)));
    cluster::Cluster& cluster = *engine->cluster_;
    cluster.OnLoss([engine = engine.get()](const auto& ranks) { engine->NoteLost(ranks); });
    engine->job_ = std::move(job);
    const auto fail = [&](Error error) {
        engine->finished_ = true;
        return error;
    };
    const Status opened =
        OpenFirstRank(engine->job_, cluster, engine->rank_, engine->working_.recoveries);
    if (!opened.ok()) return fail(opened.error());
    engine->tokenizer_ = std::move(tokenizer);
    if (engine->tokenizer_ == nullptr) {
        auto loaded = model_files::LoadTokenizer(engine->rank_->source());
        if (!loaded.ok()) return fail(cluster.ReportFailure(loaded.error()));
        engine->tokenizer_ = std::move(loaded).value();
    }
    engine->rank_->SetIdle(true);
    engine->hyper_ = engine->rank_->hyper();
    engine->context_ = engine->job_.ctx;
    engine->embeds_ = engine->rank_->has_hidden();
    engine->scheduler_ = std::make_unique<Scheduler>(
        ScheduleOptions{batch.max_seqs, engine->job_.step_rows(), engine->rank_->kv_pages(),
                        engine->rank_->page_tokens(), batch.prefix_cache, draft_rows});
    engine->NoteRecoveries();
    engine->Publish();
    return engine;
}

BatchEngine::BatchEngine(const BatchOptions& options)
    : options_(options),
      drafts_(options.draft),
      restarts_(options.max_restarts, options.restart_window_ms) {}

BatchEngine::~BatchEngine() {
    if (rank_ != nullptr && !finished_) [[maybe_unused]]
        auto ignored = Finish();
    rank_.reset();
}

Status BatchEngine::Check(const BatchRequest& request) const {
    WEFT_TRY(CheckSampler(request.sampler));
    if (request.pooling && !embeds()) {
        return MakeError(ErrorCode::kUnsupported,
                         "with pipeline stages a server makes either text or embeddings, and this "
                         "one makes text: start one with --embeddings");
    }
    if (!request.pooling && !generates()) {
        return MakeError(ErrorCode::kUnsupported,
                         "this server makes embeddings only: start one without --embeddings");
    }
    const auto adapters = static_cast<int64_t>(job_.adapters.size());
    if (request.adapter < 0 || request.adapter > adapters) {
        return MakeError(ErrorCode::kUsage, "adapter {}: there are {}", request.adapter, adapters);
    }
    if (request.prompt.empty()) {
        return MakeError(ErrorCode::kUsage, "the prompt has no tokens: give some text");
    }
    const auto tokens = static_cast<int64_t>(request.prompt.size());
    if (request.pooling && tokens + 1 > context_) {
        return MakeError(ErrorCode::kUsage,
                         "the text has {} tokens; at most {} fit the context. Cut it, or start the "
                         "server with a larger --ctx",
                         tokens, context_ - 1);
    }
    if (tokens + 1 > context_) {
        return MakeError(ErrorCode::kUsage,
                         "the prompt has {} tokens; with one for the answer the context of {} "
                         "tokens is too short. Shorten the prompt, or start the server with a "
                         "larger --ctx",
                         tokens, context_);
    }
    for (const int32_t token : request.prompt) {
        if (token >= 0 && token < hyper_.vocab) continue;
        return MakeError(ErrorCode::kUsage, "token {} is not in the vocabulary (0 to {})", token,
                         hyper_.vocab - 1);
    }
    return {};
}

Result<int64_t> BatchEngine::Submit(BatchRequest request, std::shared_ptr<Listener> listener) {
    WEFT_TRY(Check(request));
    auto active =
        std::make_unique<Active>(std::move(request), std::move(listener), *tokenizer_, NowNs());
    const int64_t room = context_ - static_cast<int64_t>(active->request.prompt.size());
    const int64_t most = active->request.max_tokens;
    active->most = most < 0 ? room : std::min(most, room);
    Sequence& sequence = active->sequence;
    sequence.tokens = active->request.prompt;
    sequence.key = active->request.key;
    sequence.priority = active->request.priority;
    sequence.weight = active->request.weight;
    sequence.adapter = active->request.adapter;
    sequence.tenant = active->request.tenant;
    const auto pooling = active->request.pooling;
    // Of a page from the cache no hidden states are known.
    sequence.cached = active->request.cached && pooling.value_or(Pooling::kLast) == Pooling::kLast;
    if (pooling) {
        active->pooler.emplace(*pooling, static_cast<int64_t>(sequence.tokens.size()),
                               hyper_.hidden);
    } else if (options_.draft.on()) {
        WEFT_TRY(active->lookup.emplace().Begin(sequence.tokens, active->request.sampler));
    }
    const std::lock_guard lock(mutex_);
    if (published_.state == BatchState::kOver) {
        return MakeError(ErrorCode::kPeerLost, "{}", published_.error);
    }
    if ((draining_ && !active->request.goes_on) || stopping_) {
        return MakeError(ErrorCode::kCancelled, "the server is shutting down");
    }
    sequence.id = next_id_++;
    const int64_t id = sequence.id;
    orders_.push_back({id, std::move(active)});
    ordered_.notify_one();
    return id;
}

void BatchEngine::Cancel(int64_t id) {
    const std::lock_guard lock(mutex_);
    orders_.push_back({id, nullptr});
    ordered_.notify_one();
}

void BatchEngine::Conclude(int64_t id) {
    const std::lock_guard lock(mutex_);
    orders_.push_back({id, nullptr, true});
    ordered_.notify_one();
}

void BatchEngine::Drain() {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    // Who is asked to end does not wait for a lost rank.
    if (published_.state == BatchState::kRecovering) cluster_->RequestStop();
    if (published_.state == BatchState::kServing) published_.state = BatchState::kDraining;
    ordered_.notify_one();
}

void BatchEngine::Stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (published_.state == BatchState::kRecovering) cluster_->RequestStop();
    ordered_.notify_one();
}

BatchStats BatchEngine::stats() const {
    const std::lock_guard lock(mutex_);
    BatchStats stats = published_;
    stats.schedule.waiting += WaitingOrders();
    return stats;
}

BatchCounters BatchEngine::counters() const {
    const std::lock_guard lock(mutex_);
    BatchCounters counters = published_;
    counters.schedule.waiting += WaitingOrders();
    return counters;
}

// What was submitted and not yet taken in. The lock is held.
int64_t BatchEngine::WaitingOrders() const {
    return std::ranges::count_if(orders_,
                                 [](const Order& order) { return order.added != nullptr; });
}

void BatchEngine::TakeOrders() {
    std::vector<Order> orders;
    {
        const std::lock_guard lock(mutex_);
        orders.swap(orders_);
    }
    for (Order& order : orders) {
        if (order.added != nullptr) {
            working_.prompt_tokens += static_cast<int64_t>(order.added->request.prompt.size());
            scheduler_->Add(&order.added->sequence);
            active_.emplace(order.id, std::move(order.added));
        } else if (const auto it = active_.find(order.id); it != active_.end()) {
            order.well
                ? EndWell(*it->second, "stop")
                : End(*it->second, MakeError(ErrorCode::kCancelled, "the request was cancelled"));
        }
    }
    Sweep();
}

// With nothing to do: until something is asked for. A rank that is lost meanwhile is got over now,
// not when the next request has to wait for it.
Status BatchEngine::WaitForOrders() {
    rank_->SetIdle(true);
    {
        std::unique_lock lock(mutex_);
        ordered_.wait_for(lock, kIdleTurn, [&] {
            return !orders_.empty() || stopping_ || (draining_ && active_.empty());
        });
    }
    const net::PeerMonitor* monitor = cluster_->monitor();
    if (monitor != nullptr && monitor->Failed()) return monitor->Failure();
    return {};
}

bool BatchEngine::stop_asked() const {
    const std::lock_guard lock(mutex_);
    return stopping_ || draining_;
}

bool BatchEngine::over() const {
    const std::lock_guard lock(mutex_);
    return stopping_ || (draining_ && active_.empty() && orders_.empty());
}

Status BatchEngine::Run() {
    cluster_->SetPhase("serve");
    Publish();
    while (!over()) {
        if (cluster_->stop_requested()) {
            return EndAll(MakeError(ErrorCode::kCancelled, "stopped by the user"));
        }
        TakeOrders();
        const Status outcome = Turn();
        if (!outcome.ok()) WEFT_TRY(GetOver(outcome.error()));
        Publish();
    }
    const Status landed = LandAll();
    if (!landed.ok()) return EndAll(cluster_->ReportFailure(landed.error()));
    rank_->SetIdle(true);
    TakeOrders();  // of which nobody else would say that they are over
    for (const auto& [id, active] : active_) {
        End(*active, MakeError(ErrorCode::kCancelled, "the server is shutting down"));
    }
    Sweep();
    return {};
}

// With pipeline stages one for each: what the first computes, and those that the others have.
int64_t BatchEngine::StepsAtOnce() const {
    return rank_->pipelined() ? rank_->layout().pp : 1;
}

// One turn of the loop: a step, or a wait for something to do.
Status BatchEngine::Turn() {
    WEFT_TRY(Survey());
    scheduler_->ShareOver(StepsAtOnce());
    const int64_t begin_ns = NowNs();
    if (drafts_.on()) Draft();
    const bool work = scheduler_->Plan(step_, planned_);
    working_.plan_s += Seconds(begin_ns, NowNs());
    if (!work && flying_.empty()) return WaitForOrders();
    if (rank_->pipelined()) return RunPipelined(work);
    WEFT_TRY(RunStep());
    return SayAll(now_);
}

// A round over the control plane (a millisecond), while somebody looks.
Status BatchEngine::Survey() {
    const int64_t now_ns = NowNs();
    if (now_ns - wanted_ns_.load(std::memory_order_relaxed) > kWantedNs) return {};
    if (now_ns - surveyed_ns_ < kSurveyNs) return {};
    WEFT_TRY(LandAll());
    WEFT_ASSIGN(std::vector<RankReport> ranks, rank_->Survey(++step_.number));
    working_.power_w.assign(ranks.size(), -1);
    for (size_t i = 0; i < std::min(ranks.size(), working_.ranks.size()); ++i) {
        const int64_t before = working_.ranks[i].energy_uj, after = ranks[i].energy_uj;
        if (before < 0 || after < before) continue;
        const auto elapsed_us = static_cast<double>(now_ns - surveyed_ns_) * 1e-3;
        working_.power_w[i] = static_cast<double>(after - before) / elapsed_us;
    }
    surveyed_ns_ = now_ns;
    reported_ = true;
    working_.ranks = std::move(ranks);
    working_.layout = rank_->layout();
    working_.transport = cluster_->size() == 1 ? "none" : cluster_->fabric().transport;
    return {};
}

// Guesses for those who say a token in the next step.
void BatchEngine::Draft() {
    scheduler_->Decodes(decodes_);
    guessers_.clear();
    for (Sequence* s : decodes_) {
        Active& active = *active_.at(s->id);
        if (active.pooler) continue;
        const grammar::Matcher* matcher = active.constrained() ? &*active.request.matcher : nullptr;
        guessers_.push_back(
            {&*active.lookup, s->tokens, active.most - active.said - 1, matcher, &s->draft});
    }
    drafts_.Choose(guessers_);
}

// Who is in a step for the first time waits no longer; and whose the rows of logits will be.
void BatchEngine::NoteStart() {
    const int64_t now_ns = NowNs();
    now_.rows.clear();
    now_.begin_ns = now_ns;
    now_.decodes = step_.output_rows.size() == step_.tokens.size();
    for (size_t i = 0; i < planned_.size(); ++i) {
        const PlannedRows& plan = planned_[i];
        const StepData::Sequence& rows = step_.sequences[i];
        Active& active = *active_.at(plan.sequence->id);
        if (active.started_ns == 0) active.started_ns = now_ns;
        if (plan.output < 0 && !active.pooler) continue;
        now_.rows.push_back({plan.sequence->id, plan.output, rows.row_begin, rows.row_count,
                             rows.position, plan.drafted});
    }
    ++working_.steps;
    working_.step_rows += static_cast<int64_t>(step_.tokens.size());
}

Status BatchEngine::RunStep() {
    rank_->SetIdle(false);
    NoteStart();
    const int64_t begin_ns = NowNs();
    WEFT_TRY(rank_->Run(step_));
    NoteEndOfStep(begin_ns);
    NoteCost(now_);
    scheduler_->Commit(planned_);
    return {};
}

void BatchEngine::NoteEndOfStep(int64_t begin_ns) {
    working_.last_step_ns = NowNs();
    const double seconds = Seconds(begin_ns, working_.last_step_ns);
    working_.step_s += seconds;
    masks_.Earn(seconds);
    working_.longest_step_s = std::max(working_.longest_step_s, seconds);
}

// With pipeline stages from the beginning of a step to its logits, the others in between included.
void BatchEngine::NoteCost(const Flight& flight) {
    if (!drafts_.on() || !flight.decodes) return;
    int64_t rows = 0;
    for (const Flight::Row& row : flight.rows) rows += row.count;
    drafts_.LearnStep(rows, Seconds(flight.begin_ns, NowNs()));
}

// This stage computes the next step while the later ones have those before (rank.h). Where there
// are as many as stages, or no next one, the oldest is waited for.
Status BatchEngine::RunPipelined(bool work) {
    rank_->SetIdle(false);
    const int64_t begin_ns = NowNs();
    if (work) {
        NoteStart();
        WEFT_TRY(rank_->Compute(step_));
    }
    std::optional<Flight> landed;
    if (!work || std::cmp_greater_equal(flying_.size() + 1, StepsAtOnce())) {
        WEFT_ASSIGN(landed, Land());
    }
    if (work) {
        WEFT_TRY(rank_->Hand(step_));
        scheduler_->CommitInFlight(planned_);
        flying_.push_back(now_);
        flying_.back().step = step_;
    }
    NoteEndOfStep(begin_ns);
    return landed ? SayAll(*landed) : Status();
}

// The oldest step that is in flight, down.
Result<BatchEngine::Flight> BatchEngine::Land() {
    Flight landed = std::move(flying_.front());
    flying_.pop_front();
    WEFT_TRY(rank_->Collect(landed.step));
    NoteCost(landed);
    return landed;
}

Status BatchEngine::LandAll() {
    while (!flying_.empty()) {
        WEFT_ASSIGN(const Flight landed, Land());
        WEFT_TRY(SayAll(landed));
    }
    return {};
}

Status BatchEngine::SayAll(const Flight& flight) {
    const int64_t begin_ns = NowNs();
    if (!flight.rows.empty()) {
        WEFT_TRY(Pool(flight));
        WEFT_TRY(SayLogits(flight));
        losses_ = 0;
        Sweep();
    }
    working_.say_s += Seconds(begin_ns, NowNs());
    return {};
}

Status BatchEngine::SayLogits(const Flight& flight) {
    int64_t outputs = 0;
    for (const Flight::Row& row : flight.rows) outputs += row.output >= 0 ? 1 + row.drafted : 0;
    if (outputs == 0 || !generates()) return {};
    WEFT_ASSIGN(const std::span<const float> logits, rank_->Logits(outputs, logits_));
    const auto vocab = static_cast<size_t>(hyper_.vocab);
    for (const Flight::Row& row : flight.rows) {
        const auto it = active_.find(row.id);
        if (it == active_.end() || it->second->pooler) continue;  // cancelled meanwhile
        it->second->sequence.in_flight = false;
        SayRows(*it->second, row, logits.subspan(static_cast<size_t>(row.output) * vocab));
        working_.last_token_ns = NowNs();
    }
    return {};
}

// Whether a request was ended by whom it says something to, and is only not told yet.
bool BatchEngine::Leaves(int64_t id) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        orders_, [&](const Order& order) { return order.id == id && order.added == nullptr; });
}

// The next token, and more as long as guesses come true. (What ends an answer removes its
// sequence.)
void BatchEngine::SayRows(Active& active, const Flight::Row& row, std::span<const float> logits) {
    const auto vocab = static_cast<size_t>(hyper_.vocab);
    Sequence& s = active.sequence;
    int64_t accepted = 0;
    for (size_t i = 0;; ++i) {
        Say(active, logits.subspan(i * vocab, vocab));
        const bool guessed = i < static_cast<size_t>(row.drafted) && s.tokens.back() == s.draft[i];
        accepted += guessed ? 1 : 0;
        if (!guessed || active.over || Leaves(s.id)) break;
        scheduler_->Keep(s);
    }
    drafts_.Count(row.drafted, accepted);
    if (!active.over) scheduler_->EndDraft(s);
}

// Embeddings: hidden states of the step's rows; after the last of a prompt, its vector.
Status BatchEngine::Pool(const Flight& flight) {
    std::span<const float> hidden;
    const auto columns = static_cast<size_t>(hyper_.hidden);
    for (const Flight::Row& row : flight.rows) {
        const auto it = active_.find(row.id);
        if (it == active_.end() || !it->second->pooler) continue;
        Active& active = *it->second;
        active.sequence.in_flight = false;
        if (!rank_->has_hidden()) {
            End(active, MakeError(ErrorCode::kUnsupported,
                                  "the cluster has pipeline stages now, and makes no embeddings"));
            continue;
        }
        const auto begin = static_cast<size_t>(row.begin), count = static_cast<size_t>(row.count);
        WEFT_ASSIGN(hidden, rank_->Hidden(row.begin + row.count, hidden_));
        active.pooler->Add(hidden.subspan(begin * columns, count * columns), row.position);
        if (row.output < 0) continue;
        active.first_ns = NowNs();
        auto vector = active.pooler->Finish();
        if (!vector.ok()) {
            End(active, vector.error());
            continue;
        }
        active.listener->OnEmbedding(std::move(*vector));
        EndWell(active, "embedding");
    }
    return {};
}

Error BatchEngine::TooMuchOfMasks(const Active& active) {
    return MakeError(ErrorCode::kUnsupported,
                     "grammar: following it took {} steps for {} tokens, more than the other "
                     "requests can wait for; rewrite it so that a text can be read in fewer ways",
                     active.mask_steps, active.said + 1);
}

// The next token, and the matcher's state after it.
Result<int32_t> BatchEngine::Draw(Active& active, std::span<const float> logits) {
    SampleContext context(active.sequence.tokens);
    context.prompt = active.request.prompt.size();
    if (!active.constrained()) return active.sampler.Sample(logits, context);
    auto& matcher = active.request.matcher;
    allowed_.resize((logits.size() + 31) / 32);
    uint64_t steps = 0;
    const bool alone = active_.size() == 1;  // then nobody waits for it
    const Status made = matcher->Allowed(allowed_, &steps);
    if (!masks_.Spend(steps, active.mask_steps) && !alone) return TooMuchOfMasks(active);
    if (!made.ok()) return made.error();
    context.allowed = allowed_;
    WEFT_ASSIGN(const int32_t token, active.sampler.Sample(logits, context));
    steps = 0;
    WEFT_TRY(matcher->Accept(token, &steps));
    if (!masks_.Spend(steps, active.mask_steps) && !alone) return TooMuchOfMasks(active);
    return token;
}

// Draws the next token of one request and says it.
void BatchEngine::Say(Active& active, std::span<const float> logits) {
    const bool constrained = active.constrained();
    const int64_t begin_ns = NowNs();
    auto drawn = Draw(active, logits);
    if (!drawn.ok()) return End(active, drawn.error());
    const int32_t token = *drawn;
    if (active.first_ns == 0) active.first_ns = NowNs();
    active.sequence.tokens.push_back(token);
    ++active.said;
    ++working_.said_tokens;
    SaidToken said{{token, 0}, {}};
    if (active.request.logprobs >= 0) said = Chances(logits, token, active.request.logprobs);
    working_.sample_s += Seconds(begin_ns, NowNs());
    const bool eos = tokenizer_->IsEog(token) && !active.request.ignore_eos;
    const std::string text = eos ? "" : active.stop.Push(active.decoder.Push(token));
    active.listener->OnToken(said, text);
    active.FollowMarker(text);
    std::string finish;
    if (eos) {
        finish = "eos";
    } else if (active.stop.stopped() || (constrained && active.request.matcher->Ended())) {
        finish = "stop";
    } else if (active.said >= active.most) {
        finish = active.most == active.request.max_tokens ? "length" : "context";
    }
    if (!finish.empty()) EndWell(active, finish);
}

void BatchEngine::EndWell(Active& active, const std::string& finish) {
    Ending ending{finish};
    ending.prompt_tokens = static_cast<int64_t>(active.request.prompt.size());
    ending.cached_tokens = active.sequence.from_cache;
    ending.said_tokens = active.said;
    ending.queue_s = Seconds(active.submitted_ns, active.started_ns);
    ending.first_token_s = Seconds(active.submitted_ns, active.first_ns);
    ending.total_s = Seconds(active.submitted_ns, NowNs());
    if (finish == "stop") ending.stop_text = active.stop.found();
    End(active, ending);
}

void BatchEngine::End(Active& active, const Result<Ending>& ending) {
    if (active.over) return;
    active.over = true;
    std::string rest;
    if (ending.ok()) {
        rest = active.stop.Push(active.decoder.Flush());
        rest += active.stop.Flush();
    }
    const bool cancelled = !ending.ok() && ending.error().code == ErrorCode::kCancelled;
    ++(ending.ok() ? working_.ended : cancelled ? working_.cancelled : working_.failed);
    active.listener->OnEnd(rest, ending);
    scheduler_->Remove(&active.sequence);
    ended_.push_back(active.sequence.id);
}

void BatchEngine::Sweep() {
    for (const int64_t id : ended_) active_.erase(id);
    ended_.clear();
}

Status BatchEngine::GetOver(Error error) {
    rank_->SetIdle(true);
    flying_.clear();
    if (stop_asked()) return EndAll(cluster_->ReportFailure(std::move(error)));
    const std::string limit = cluster_->recovers() ? LimitReached() : "";
    if (cluster_->recovers() && limit.empty()) return StartAgain(std::move(error));
    error = cluster_->ReportFailure(std::move(error));
    if (error.code == ErrorCode::kPeerLost) error.message += limit;
    return FailAll(std::move(error));
}

// Why this loss is one too many; empty: it is not.
std::string BatchEngine::LimitReached() {
    if (++losses_ > kMostLosses) {
        return fmt::format(
            ". That was loss {} in a row without one token between: the server "
            "gives up",
            losses_);
    }
    if (restarts_.Allows(NowNs())) return "";
    const int64_t window_ms = options_.restart_window_ms;
    const std::string window = window_ms > 0 ? fmt::format(" within the last {:.6g} s",
                                                           static_cast<double>(window_ms) / 1e3)
                                             : "";
    return fmt::format(
        ". The server has got over {} losses{}, which is the most that it may "
        "(--max-restarts {}, --restart-window-ms {}); start it again, with a higher "
        "limit if these are to be lived with",
        restarts_.Recent(NowNs()), window, options_.max_restarts, window_ms);
}

Status BatchEngine::StartAgain(Error error) {
    {
        const std::lock_guard lock(mutex_);
        if (stopping_ || draining_) cluster_->RequestStop();  // asked for just now
        published_.state = BatchState::kRecovering;
        published_.loss = error.message;
        published_.lost_s = std::time(nullptr);
    }
    const Status recovered = Recover(job_, *cluster_, rank_, error, working_.recoveries);
    if (!recovered.ok()) return EndAll(recovered.error());
    NoteRecoveries();
    reported_ = true;
    scheduler_->Forget();
    drafts_.ForgetCosts();
    cluster_->SetPhase("serve");
    rank_->SetIdle(true);
    return {};
}

// One loss, or more than one, was got over just now.
void BatchEngine::NoteRecoveries() {
    auto& recoveries = working_.recoveries;
    auto& times_s = working_.recovered_s;
    while (times_s.size() < recoveries.size()) {
        times_s.push_back(std::time(nullptr));
        restarts_.Add(NowNs());
        ++working_.recovered;
    }
    while (recoveries.size() > BatchStats::kMostRecoveries) {
        recoveries.erase(recoveries.begin());
        times_s.erase(times_s.begin());
    }
}

// Who looks meanwhile sees which ranks are gone. The next Publish of everything forgets it.
void BatchEngine::NoteLost(const std::vector<int>& ranks) {
    const std::lock_guard lock(mutex_);
    for (const int rank : ranks) {
        if (std::ranges::find(published_.lost, rank) == published_.lost.end()) {
            published_.lost.push_back(rank);
        }
    }
}

// What went wrong after the user asked for the end is no failure of it.
Status BatchEngine::EndAll(Error error) {
    if (!stop_asked()) return FailAll(std::move(error));
    if (error.code != ErrorCode::kCancelled) Log(LogLevel::kWarning, "{}", error.message);
    [[maybe_unused]] const Status ended =
        FailAll(MakeError(ErrorCode::kCancelled, "the server is shutting down"));
    return {};
}

// The end: whoever waits gets the reason.
Status BatchEngine::FailAll(Error error) {
    finished_ = true;
    {
        const std::lock_guard lock(mutex_);
        published_.state = BatchState::kOver;
        published_.error = error.message;
        working_.error = error.message;
        working_.state = BatchState::kOver;
    }
    TakeOrders();
    for (const auto& [id, active] : active_) End(*active, error);
    Sweep();
    return error;
}

void BatchEngine::Publish() {
    working_.schedule = scheduler_->stats();
    working_.drafts = drafts_.counts();
    working_.max_seqs = options_.max_seqs;
    const std::lock_guard lock(mutex_);
    working_.state = draining_ ? BatchState::kDraining : BatchState::kServing;
    if (reported_) {
        published_ = working_;
        reported_ = false;
    } else {
        static_cast<BatchCounters&>(published_) = working_;
    }
}

Result<std::vector<RankReport>> BatchEngine::Finish() {
    if (finished_) return std::vector<RankReport>{};
    finished_ = true;
    auto reports = EndJob(step_.number + 1, *cluster_, rank_);
    if (reports.ok() || !stop_asked()) return reports;
    Log(LogLevel::kWarning, "at the end: {}", reports.error().message);
    return std::vector<RankReport>{};
}

}  // namespace weft::engine
