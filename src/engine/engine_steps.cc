// Steps: choice of rows, execution on all ranks, cost.
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "engine/rank/running_request.h"

namespace weft::engine {
namespace {

// Period of reports, and how long they continue after WantReports.
constexpr int64_t kSurveyNs = 1'000'000'000;
constexpr int64_t kWantedNs = 10'000'000'000;
// Least time between two counts of the prompts that are not computed yet.
constexpr int64_t kCountNs = 100'000'000;

}  // namespace

// With pipeline stages, one step per stage: the first stage computes one, the other stages the
// others.
int64_t Engine::StepsAtOnce() {
    return rank().pipelined() ? rank().layout().pp : 1;
}

// One iteration of the loop: a step, or a wait for work.
Status Engine::Turn() {
    WEFT_TRY(Survey());
    scheduler_->ShareOver(StepsAtOnce(), rank().layout().pp);
    if (drafts_.on()) WEFT_TRY(Draft());
    if (std::exchange(scores_seen_, scores_.changes()) != scores_.changes()) {
        for (const auto& [id, active] : active_) FindScores(*active);
    }
    WEFT_TRY(RunSlots());
    WEFT_TRY(RestorePages());
    const int64_t begin_ns = NowNs();
    const bool work = scheduler_->Plan(runner_->step(), planned_);
    working_.plan_s += Seconds(begin_ns, NowNs());
    Publish();  // running and waiting requests, during the step
    if (!work && in_flight_.empty()) {
        WEFT_TRY(KeepPages());
        return scheduler_->seeks() ? Status() : WaitForCommands();
    }
    if (work) runner_->step().keyed = scheduler_->TakeSaves();
    if (rank().pipelined()) return RunPipelined(work);
    WEFT_TRY(RunStep());
    return EmitStep(now_);
}

// Gathers reports over the control plane (a millisecond), while they are requested.
Status Engine::Survey() {
    const int64_t now_ns = NowNs();
    if (now_ns - wanted_ns_.load(std::memory_order_relaxed) > kWantedNs) return {};
    if (now_ns - surveyed_ns_ < kSurveyNs) return {};
    WEFT_TRY(CompleteAllSteps());
    WEFT_ASSIGN(std::vector<RankReport> ranks, rank().Survey(++runner_->step().number));
    working_.power_w.assign(ranks.size(), -1);
    for (size_t i = 0; i < std::min(ranks.size(), working_.ranks.size()); ++i) {
        const int64_t before = working_.ranks[i].energy_uj, after = ranks[i].energy_uj;
        if (before < 0 || after < before) continue;
        const auto elapsed_us = static_cast<double>(now_ns - surveyed_ns_) * 1e-3;
        working_.power_w[i] = static_cast<double>(after - before) / elapsed_us;
    }
    surveyed_ns_ = now_ns;
    working_.ranks = std::move(ranks);
    NoteLayout();
    return {};
}

// Drafts for the sequences that decode in the next step. Judged drafts are chosen once: if the step
// that judges a draft is lost, the next step judges it.
Status Engine::Draft() {
    scheduler_->Decodes(decodes_);
    guessers_.clear();
    const auto saying = static_cast<int64_t>(decodes_.size());
    for (Sequence* s : decodes_) {
        RunningRequest& active = *active_.at(s->id);
        if (active.pooler) continue;
        if (active.drafts.own && active.drafted_at == s->tokens.size()) continue;
        int64_t left = active.most - active.said - 1;
        if (drafter_ != nullptr) {
            left =
                std::min({left, options_.draft.most(), scheduler_->RowsForDrafts(saying) / saying});
            left = scheduler_->PagesForDraft(*s, std::max<int64_t>(left, 0), saying - 1);
        }
        const grammar::Matcher* matcher = active.constrained() ? &*active.request.matcher : nullptr;
        DraftText text = TextOf(active, static_cast<int64_t>(s->tokens.size()));
        text.draft = &s->draft;
        guessers_.push_back({&active.drafts, text, left, matcher});
    }
    WEFT_TRY(drafts_.Choose(guessers_));
    if (draft_head_ != nullptr) WEFT_TRY(draft_head_->Follow());
    for (const Sequence* s : decodes_) active_.at(s->id)->drafted_at = s->tokens.size();
    return {};
}

// The first `tokens` tokens of a request's text, for drafts.
DraftText Engine::TextOf(const RunningRequest& active, int64_t tokens) const {
    const Sequence& s = active.sequence;
    DraftText text;
    text.id = s.id;
    text.tokens = std::span(s.tokens).first(static_cast<size_t>(tokens));
    text.pages = s.pages;
    text.space = std::hash<std::string>()(s.tenant);
    text.sampler = &active.sampler;
    text.prompt = active.request.prompt.size();
    return text;
}

// The draft model reads the prompt rows of the step, so it can draft from the first token on, and
// delays others by a step at a time.
Status Engine::ReadAlong() {
    if (drafter_ == nullptr || draft_head_ != nullptr) return {};
    texts_.clear();
    for (const PlannedRows& plan : planned_) {
        const RunningRequest& active = *active_.at(plan.sequence->id);
        if (plan.rows - plan.drafted == 1 || active.pooler) continue;
        texts_.push_back(TextOf(active, plan.sequence->computed));
    }
    return texts_.empty() ? Status() : drafter_->Guess(texts_);
}

// The step's rows with the resulting tokens, which the draft head reads before the next step.
// (Requests that ended are still here.)
void Engine::NoteForHead() {
    draft_head_->BeginStep(runner_->step());
    for (const PlannedRows& plan : planned_) {
        const RunningRequest& active = *active_.at(plan.sequence->id);
        const bool drafts = plan.output >= 0 && !active.over && !active.pooler;
        draft_head_->AddText(drafts ? plan.sequence->id : 0, plan.sequence->tokens);
    }
}

// Records the start of new sequences, the owners of the rows of logits, and the parts of the rows
// that they need.
void Engine::NoteStart() {
    const int64_t now_ns = NowNs();
    StepData& step = runner_->step();
    step.wanted.columns = rank().hyper().vocab;
    now_.rows.clear();
    now_.begin_ns = now_ns;
    const auto scores = [](const PlannedRows& plan) { return plan.score_rows > 0; };
    now_.decodes =
        step.output_rows.size() == step.tokens.size() && std::ranges::none_of(planned_, scores);
    if (!serving_) cluster().SetPhase(now_.decodes ? "decode" : "prefill");
    for (size_t i = 0; i < planned_.size(); ++i) {
        const PlannedRows& plan = planned_[i];
        const StepData::Sequence& rows = step.sequences[i];
        RunningRequest& active = *active_.at(plan.sequence->id);
        if (active.started_ns == 0) {
            active.started_ns = now_ns;
            const std::lock_guard lock(mutex_);
            WaitsNoMore(plan.sequence->id);
        }
        if (plan.output < 0 && !active.pooler && plan.score_rows == 0) continue;
        if (!active.pooler) {
            active.Want(step.wanted);
            NoteRowRequests(active, plan);
        }
        now_.rows.push_back({plan.sequence->id, plan.output, rows.row_begin, rows.row_count,
                             rows.position, plan.drafted, plan.scores, plan.score_begin,
                             plan.score_rows});
    }
    ++working_.steps;
    working_.step_rows += static_cast<int64_t>(step.tokens.size());
    const auto& bounds = EngineCounters::kStepRowBounds;
    const auto bound = std::ranges::lower_bound(bounds, static_cast<double>(step.tokens.size()));
    ++working_.steps_by_rows[static_cast<size_t>(bound - bounds.begin())];
}

// Sets what the last of several pipeline stages sends for the rows of a plan.
void Engine::NoteRowRequests(const RunningRequest& active, const PlannedRows& plan) {
    StepData& step = runner_->step();
    if (rank().layout().pp == 1 || plan.output < 0) return;
    step.asks.resize(step.output_rows.size());
    for (int64_t place = 0; place <= plan.drafted; ++place) {
        step.asks[static_cast<size_t>(plan.output + place)] =
            active.Ask(place, plan.drafted, step.wanted.columns);
    }
}

Status Engine::RunStep() {
    NoteStart();
    const int64_t begin_ns = NowNs();
    WEFT_TRY(runner_->Run());
    NoteEndOfStep(begin_ns);
    NoteCost(now_);
    scheduler_->Commit(planned_);
    NotePromptRows(begin_ns);
    return ReadAlong();
}

// Learns from a step with rows of prompts, and notifies the owners of the prompts.
void Engine::NotePromptRows(int64_t begin_ns) {
    const int64_t now_ns = NowNs();
    prompt_parts_.clear();
    prompts_left_.clear();
    for (const PlannedRows& plan : planned_) {
        const Sequence& s = *plan.sequence;
        if (plan.rows - plan.drafted == 1) continue;  // decodes
        prompt_parts_.push_back({s.computed - (plan.rows - plan.drafted), s.computed});
        prompts_left_.push_back({s.computed, std::ssize(s.tokens)});
    }
    prompt_clock_.Learn(prompt_parts_, Seconds(begin_ns, now_ns));
    size_t index = 0;
    for (const PlannedRows& plan : planned_) {
        const Sequence& s = *plan.sequence;
        if (plan.rows - plan.drafted == 1) continue;
        const RunningRequest& active = *active_.at(s.id);
        const auto left = SecondsBeside(prompt_clock_, prompts_left_, index++);
        if (active.first_ns != 0) continue;  // computed again after a preemption
        active.listener->OnPromptRows({.total = std::ssize(s.tokens),
                                       .cached = s.from_cache,
                                       .processed = s.computed,
                                       .seconds = Seconds(active.started_ns, now_ns),
                                       .left_s = left.value_or(-1)});
    }
    if (now_ns - counted_ns_ > kCountNs) CountPromptsLeft(now_ns);
}

void Engine::CountPromptsLeft(int64_t now_ns) {
    counted_ns_ = now_ns;
    working_.prompt_tokens_left = 0;
    double seconds = 0;
    for (const auto& [id, active] : active_) {
        const Sequence& s = active->sequence;
        const PromptPart left{s.computed, std::ssize(s.tokens)};
        if (active->over || left.rows() <= 1) continue;
        working_.prompt_tokens_left += left.rows();
        seconds += prompt_clock_.Predict(left).value_or(0);
    }
    working_.prompt_seconds_left = prompt_clock_.Predict({}) ? seconds : -1;
}

void Engine::NoteEndOfStep(int64_t begin_ns) {
    working_.last_step_ns = NowNs();
    const double seconds = Seconds(begin_ns, working_.last_step_ns);
    working_.step_s += seconds;
    masks_.Earn(seconds);
    working_.longest_step_s = std::max(working_.longest_step_s, seconds);
}

// Records the time of a step. With pipeline stages, it is the time from the start of the step to
// its logits, including the steps between.
void Engine::NoteCost(const InFlightStep& in_flight) {
    if (!drafts_.on() || !in_flight.decodes) return;
    int64_t rows = 0;
    for (const InFlightStep::Row& row : in_flight.rows) rows += row.count;
    drafts_.LearnStep(rows, Seconds(in_flight.begin_ns, NowNs()));
}

// This stage computes the next step while later stages have the previous ones (rank.h). With as
// many steps as stages, or without a next step, it waits for the oldest.
Status Engine::RunPipelined(bool work) {
    rank().SetIdle(false);
    const int64_t begin_ns = NowNs();
    if (work) {
        NoteStart();
        WEFT_TRY(rank().Compute(runner_->step()));
    }
    std::optional<InFlightStep> completed;
    if (!work || std::cmp_greater_equal(in_flight_.size() + 1, StepsAtOnce())) {
        WEFT_ASSIGN(completed, CompleteStep());
    }
    if (work) {
        WEFT_TRY(rank().Hand(runner_->step()));
        scheduler_->CommitInFlight(planned_);
        NotePromptRows(begin_ns);
        in_flight_.push_back(now_);
        in_flight_.back().step = runner_->step();
    }
    NoteEndOfStep(begin_ns);
    if (work) WEFT_TRY(ReadAlong());
    return completed ? EmitStep(*completed) : Status();
}

// Completes the oldest step in flight.
Result<Engine::InFlightStep> Engine::CompleteStep() {
    InFlightStep completed = std::move(in_flight_.front());
    in_flight_.pop_front();
    WEFT_TRY(rank().Collect(completed.step));
    NoteCost(completed);
    return completed;
}

Status Engine::CompleteAllSteps() {
    while (!in_flight_.empty()) {
        WEFT_ASSIGN(const InFlightStep completed, CompleteStep());
        WEFT_TRY(EmitStep(completed));
    }
    return {};
}

}  // namespace weft::engine
