#include "serve/api/answer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace weft::serve {

using chat::AnswerDelta;

namespace {

// Larger answers are formatted on another thread. This size takes 1 to 2 ms, which a step may wait.
constexpr size_t kMostFormattedInline = 64 << 10;
constexpr double kLoggedSeconds = 10;  // predicted time of a prompt that the log announces
constexpr size_t kLogprobBytes = 100;  // approximate JSON size of a token's log-probability

// Approximate JSON sizes of a token's log-probabilities, and of a delta.
size_t BytesOf(const engine::GeneratedToken& token) {
    return kLogprobBytes * (1 + token.best.size());
}
size_t BytesOf(const AnswerDelta& delta, std::span<const engine::GeneratedToken> tokens) {
    size_t bytes = delta.content.size() + delta.reasoning.size();
    for (const chat::ToolCall& call : delta.tool_calls) bytes += call.arguments.size();
    for (const auto& part : delta.call_parts) bytes += part.arguments.size();
    for (const engine::GeneratedToken& token : tokens) bytes += BytesOf(token);
    return bytes;
}

}  // namespace

void ReadReports(Fields& fields, AnswerPlan& plan) {
    plan.timings = fields.Bool("timings_per_token", false);
    plan.prompt_progress = fields.Bool("return_progress", false);
}

Result<grammar::Matcher> CompileFor(AnswerPlan& plan, const Served& served,
                                    const ConstraintText& constraint) {
    std::string keywords;
    auto matcher = served.constraints->Compile(constraint, plan.tenant, &keywords, plan.effort);
    AddNames(plan.left.left_out, keywords);
    if (!matcher.ok() && matcher.error().code == ErrorCode::kCancelled) plan.deferred = true;
    return matcher;
}

std::optional<ApiError> ConstrainText(AnswerPlan& plan, const Served& served,
                                      const ConstraintText& constraint, engine::Request& request) {
    if (constraint.kind.empty()) return {};
    auto matcher = CompileFor(plan, served, constraint);
    if (!matcher.ok()) {
        return ApiError{400, matcher.error().message, constraint.param, "invalid_value", true};
    }
    request.matcher = std::move(*matcher);
    return {};
}

std::optional<ApiError> WhyNotRun(const engine::Engine& engine, const engine::Request& request,
                                  const std::string& prompt_name) {
    const Status sound = engine.Check(request);
    if (sound.ok()) return {};
    if (engine.Fits(request)) return ErrorOf(sound.error());
    return TooLong({std::ssize(request.prompt), engine.context(), request.max_tokens != 0},
                   prompt_name);
}

namespace {

void BeginStream(Exchange& exchange, Dialect& dialect, Headers headers) {
    headers.insert(headers.end(), {{"Content-Type", dialect.StreamType()},
                                   {"Cache-Control", "no-cache"},
                                   {"X-Accel-Buffering", "no"}});
    exchange.Begin(200, std::move(headers));
}

}  // namespace

void StreamRefusal(Exchange& exchange, Dialect& dialect, Headers headers, const ApiError& error) {
    std::string out;
    dialect.Begin(out);
    dialect.Fail(error, out);
    BeginStream(exchange, dialect, std::move(headers));
    exchange.EndWith(std::move(out));
}

void NoteRecord(Exchange& exchange, const AnswerRecord& record) {
    exchange.Note([&](RequestNote& note) {
        note.error = record.error;
        if (record.endings.empty()) return;
        note.prompt_tokens = record.usage.prompt_tokens;
        note.cached_tokens = record.usage.cached_tokens;
        note.generated_tokens = record.usage.generated_tokens;
        note.queue_s = note.first_token_s = 0;
        for (const engine::Ending& ending : record.endings) {
            note.queue_s = std::max(note.queue_s, ending.queue_s);
            note.first_token_s = std::max(note.first_token_s, ending.first_token_s);
        }
    });
}

class Answer::ChoiceListener final : public engine::Listener {
  public:
    ChoiceListener(std::shared_ptr<Answer> answer, size_t index)
        : answer_(std::move(answer)), index_(index) {}
    void OnPromptRows(const PromptProgress& progress) override {
        answer_->OnPromptRows(index_, progress);
    }
    void OnPrefilled(double queue_s, double first_token_s, int64_t cached_tokens) override {
        answer_->OnPrefilled(
            index_,
            {.cached_tokens = cached_tokens, .queue_s = queue_s, .first_token_s = first_token_s});
    }
    void OnToken(const engine::GeneratedToken& token, std::string_view text) override {
        answer_->OnText(index_, text, &token);
    }
    void OnPrompt(const engine::GeneratedToken& token) override {
        answer_->OnPrompt(index_, token);
    }
    void OnSpent(int64_t prompt_tokens, int64_t generated_tokens) override {
        answer_->AddUsage(index_, prompt_tokens, generated_tokens);
    }
    void OnEnd(std::string_view rest, const Result<engine::Ending>& ending) override {
        answer_->EndChoice(index_, rest, ending);
    }

  private:
    std::shared_ptr<Answer> answer_;
    size_t index_;
};

Answer::Answer(engine::Engine& engine, std::shared_ptr<Exchange> exchange, AnswerPlan& plan,
               Observer observer, Later later)
    : engine_(engine),
      exchange_(std::move(exchange)),
      dialect_(std::move(plan.dialect)),
      stream_(plan.stream),
      one_call_(plan.one_call),
      hides_reasoning_(plan.hides_reasoning),
      content_tokens_(plan.content_tokens),
      keeps_tokens_(plan.keeps_tokens),
      ends_slowly_(plan.ends_slowly),
      timings_(plan.timings),
      prompt_progress_(plan.stream && plan.prompt_progress),
      headers_(std::move(plan.headers)),
      slot_(std::move(plan.slot)),
      observer_(std::move(observer)),
      later_(std::move(later)),
      tools_(plan.tools),
      left_(plan.choices.size()),
      ids_(plan.choices.size()) {
    record_.request_id = exchange_->request().id;
    record_.n = plan.n;
    if (!plan.choices.empty()) record_.max_tokens = plan.choices[0].request.max_tokens;
    for (const ChoicePlan& choice : plan.choices) {
        choices_.emplace_back(chat::AnswerParser(plan.family, plan.begins_in_reasoning,
                                                 plan.stream && !plan.whole_calls, plan.tools,
                                                 plan.verbatim, plan.reading),
                              choice);
        choices_.back().parser.Push(plan.begun);
        wants_logprobs_.push_back(choice.request.logprobs >= 0);
        closings_.push_back(choice.closing);
        demanded_.push_back(choice.demanded);
        if (choice.demanded) choices_.back().written = choice.given;
        counts_prompt_.push_back(choice.counts_prompt);
        echo_logprobs_.push_back(choice.echo_logprobs);
        const engine::Request& request = choice.request;
        if (request.prompt_logprobs >= 0 && !request.prompt.empty()) {
            choices_.back().choice.prompt.push_back({{request.prompt[0], std::nanf("")}, {}});
        }
        if (choice.echo_logprobs) choices_.back().echo = choice.echo;
    }
}

void Answer::Start(engine::Engine& engine, std::shared_ptr<Exchange> exchange, AnswerPlan plan,
                   Observer observer, Later later) {
    std::shared_ptr<Answer> answer(
        new Answer(engine, std::move(exchange), plan, std::move(observer), std::move(later)));
    for (const ChoicePlan& choice : plan.choices) {
        const auto error = WhyNotRun(engine, choice.request, plan.prompt_name);
        if (!error) continue;
        answer->record_.error = error->message;
        answer->Observe();
        return answer->Refuse(*error);
    }
    answer->Submit(std::move(plan.choices));
}

void Answer::Refuse(const ApiError& error) {
    if (stream_ && dialect_->StreamsRefusal(error)) {
        NoteRecord(*exchange_, record_);
        return StreamRefusal(*exchange_, *dialect_, headers_, error);
    }
    Headers headers = headers_;
    headers.emplace_back("Content-Type", "application/json");
    if (error.status == 503) headers.emplace_back("Retry-After", "5");
    NoteRecord(*exchange_, record_);
    exchange_->Send(error.status, std::move(headers), dialect_->ErrorBody(error));
}

// `given` is part of the answer, as if the model had generated it.
void Answer::Submit(std::vector<ChoicePlan> plans) {
    if (stream_) {
        BeginStream(*exchange_, *dialect_, headers_);
        std::string out;
        dialect_->Begin(out);
        Write(std::move(out));
        exchange_->OnSilence([weak = weak_from_this()] {
            const auto self = weak.lock();
            return self ? self->Filling() : std::string();
        });
    }
    for (size_t i = 0; i < plans.size(); ++i) {
        const std::lock_guard lock(mutex_);  // another thread may format the text before
        if (!plans[i].echo.empty() && !plans[i].echo_logprobs) Add(i, {plans[i].echo, {}, {}});
        if (!plans[i].given.empty()) Add(i, choices_[i].parser.Push(plans[i].given));
    }
    exchange_->OnDisconnect([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->CancelAll();
    });
    for (size_t i = 0; i < plans.size(); ++i) {
        auto listener = std::make_shared<ChoiceListener>(shared_from_this(), i);
        plans[i].request.group = ids_[0];
        const auto id = engine_.Submit(std::move(plans[i].request), listener);
        if (id.ok()) {
            ids_[i] = *id;
            const std::lock_guard lock(mutex_);
            if (choices_[i].concluded) engine_.StopEarly(*id);
        } else {
            // Nothing else ends this choice. The engine rejects the other choices in the same way.
            listener->OnEnd("", id.error());
        }
    }
    if (gone_) CancelAll();
}

void Answer::CancelAll() {
    gone_ = true;
    for (const auto& id : ids_) {
        if (id > 0) engine_.Cancel(id);
    }
}

void Answer::Write(std::string text) {
    if (!text.empty()) exchange_->Write(std::move(text));
}

// What a silent stream sends. Nothing, if another thread is about to send something.
std::string Answer::Filling() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    std::string out;
    if (!lock || !waiting_.empty() || !record_.error.empty()) return out;
    const auto running = std::ranges::find(choices_, false, &State::over);
    if (running == choices_.end()) return out;
    dialect_->Waiting(static_cast<int>(running - choices_.begin()), out);
    return out;
}

void Answer::OnPromptRows(size_t index, const PromptProgress& progress) {
    const std::lock_guard lock(mutex_);
    State& state = choices_[index];
    if (!std::exchange(state.begun, true) && progress.left_s >= kLoggedSeconds) {
        Log(LogLevel::kInfo,
            "{}: {} of {} prompt tokens are to be computed; the first answer token is expected in "
            "{:.0f} s",
            record_.request_id, progress.total - progress.cached, progress.total, progress.left_s);
    }
    if (!prompt_progress_) return;
    if (state.over || !waiting_.empty()) return;
    std::string out;
    dialect_->PromptProgress(progress);
    dialect_->Waiting(static_cast<int>(index), out);
    Write(std::move(out));
}

void Answer::OnPrefilled(size_t index, const Usage& usage) {
    if (!timings_) return;
    const std::lock_guard lock(mutex_);
    State& state = choices_[index];
    state.prefilled = usage;
    state.prefilled.prompt_tokens = state.prompt_tokens;
    state.prefilled_ns = NowNs();
}

// The progress of a choice; nullopt before its first token, or if no one requests it.
std::optional<Usage> Answer::ProgressOf(size_t index) const {
    const State& state = choices_[index];
    if (state.prefilled_ns == 0) return {};
    Usage usage = state.prefilled;
    usage.generated_tokens = state.said;
    usage.total_s = usage.first_token_s + static_cast<double>(NowNs() - state.prefilled_ns) * 1e-9;
    return usage;
}

void Answer::OnText(size_t index, std::string_view text, const engine::GeneratedToken* token) {
    const std::lock_guard lock(mutex_);
    State& state = choices_[index];
    const int64_t now_ns = NowNs();
    if (state.last_ns > 0) {
        record_.gaps_s.push_back(static_cast<float>(now_ns - state.last_ns) * 1e-9f);
    }
    state.last_ns = now_ns;
    state.said += token != nullptr ? 1 : 0;
    if (index == 0 && slot_ != nullptr && token != nullptr) slot_->Add(token->chance.id);
    EmitEcho(index);
    if (keeps_tokens_ && token != nullptr) state.choice.end.tokens.push_back(token->chance.id);
    const bool reasons = state.parser.in_reasoning();
    AnswerDelta delta;
    if (!text.empty()) {
        if (demanded_[index]) state.written += text;
        delta = state.parser.Push(text, token != nullptr ? token->chance.id : -1);
        // (A thought may quote a call.)
        if (state.parser.in_reasoning()) state.written.clear();
    }
    const bool thought = reasons || state.parser.in_reasoning() || !delta.reasoning.empty();
    record_.usage.reasoning_tokens += thought && token != nullptr;
    const bool hidden = thought && (hides_reasoning_ || content_tokens_);
    if (wants_logprobs_[index] && token != nullptr && !hidden) AddPending(state, *token);
    if (!text.empty()) Add(index, std::move(delta));
}

// A token whose text the parser holds back, maybe for long.
void Answer::AddPending(State& state, const engine::GeneratedToken& token) {
    if (!record_.error.empty()) return;  // the answer ends
    state.pending.push_back(token);
    pending_bytes_ += BytesOf(token);
    HoldPending();
}

void Answer::OnPrompt(size_t index, const engine::GeneratedToken& token) {
    const std::lock_guard lock(mutex_);
    if (!record_.error.empty()) return;
    choices_[index].choice.prompt.push_back(token);
    (stream_ ? pending_bytes_ : kept_bytes_) += BytesOf(token);
    HoldPending();
}

// A stream counts only the bytes that its client has not received.
void Answer::HoldPending() {
    if (!stream_) {
        const size_t bytes = kept_bytes_ + pending_bytes_;
        if (bytes > held_bytes_ + kMostFormattedInline) Hold(bytes);
    } else if (pending_bytes_ > kMostFormattedInline) {
        Hold(pending_bytes_ + exchange_->backlog_bytes());
    }
}

// Sends an echo with log-probabilities, which are known after prefill.
void Answer::EmitEcho(size_t index) {
    State& state = choices_[index];
    if (!state.echo) return;
    state.pending = state.choice.prompt;
    if (stream_) {
        state.choice.prompt.clear();
    } else {
        pending_bytes_ += BytesOf({}, state.pending);
    }
    Add(index, {*std::exchange(state.echo, std::nullopt), {}, {}});
}

// Adds the tokens of a choice that was cancelled early.
void Answer::AddUsage(size_t index, int64_t prompt_tokens, int64_t generated_tokens) {
    const std::lock_guard lock(mutex_);
    record_.usage.prompt_tokens += counts_prompt_[index] ? prompt_tokens : 0;
    record_.usage.generated_tokens += generated_tokens;
}

// Returns the rest of the answer after the last token. An unfinished forced call is returned as far
// as it was generated; the grammar's ending is not added, and call markers do not become content.
AnswerDelta Answer::Close(size_t index, const engine::Ending& ending) {
    State& state = choices_[index];
    const bool ended = ending.finish == "eos";
    if (!demanded_[index] || ending.complete) {
        if (!closings_[index].empty()) Add(index, state.parser.Push(closings_[index]));
        return state.parser.Finish(ended);
    }
    if (state.calling) return state.parser.Finish(ended);
    static const chat::ToolTypes kNone;
    // The call may follow reasoning.
    const size_t begin = state.written.find(demanded_[index]->before);
    const auto call = std::string_view(state.written).substr(std::min(begin, state.written.size()));
    auto begun = chat::BegunCall(*demanded_[index], call, tools_ ? *tools_ : kNone);
    if (!begun) return {};
    AnswerDelta delta;
    delta.call_parts.push_back(*std::move(begun));
    return delta;
}

// Drops everything after the first call and ends the choice in the engine.
void Answer::KeepOneCall(size_t index, AnswerDelta& delta) {
    State& state = choices_[index];
    if (state.called) {
        delta = {};
        return;
    }
    const auto end = std::ranges::find_if(delta.call_parts, [](const auto& p) { return p.ends; });
    if (end != delta.call_parts.end()) {
        delta.call_parts.erase(end + 1, delta.call_parts.end());
        delta.tool_calls.clear();
        state.called = true;
    } else if (!delta.tool_calls.empty()) {
        delta.tool_calls.resize(1);
        state.called = true;
    }
    if (state.called) StopEarly(index);
}

// The first tokens may arrive before Submit stores the request's id.
void Answer::StopEarly(size_t index) {
    choices_[index].concluded = true;
    if (ids_[index] > 0) engine_.StopEarly(ids_[index]);
}

// Cuts the content at the first stop string and ends the choice in the engine.
void Answer::CutAtStop(size_t index, AnswerDelta& delta) {
    const State& state = choices_[index];
    ContentStops& stop = choices_[index].stop;
    const bool stopped = stop.stopped();
    stop.Cut(delta, state.min_tokens == 0 || state.said > state.min_tokens);
    if (stop.stopped() && !stopped) StopEarly(index);
}

void Answer::Add(size_t index, AnswerDelta delta) {
    if (hides_reasoning_) delta.reasoning.clear();
    if (one_call_) KeepOneCall(index, delta);
    CutAtStop(index, delta);
    Give(index, delta);
}

// Sends the delta to the client, or collects it for a complete answer.
void Answer::Give(size_t index, const AnswerDelta& delta) {
    State& state = choices_[index];
    if (delta.empty()) return;
    state.calling = state.calling || !delta.tool_calls.empty() || !delta.call_parts.empty();
    const bool ends = std::ranges::any_of(delta.call_parts, [](const auto& p) { return p.ends; });
    state.called = state.called || !delta.tool_calls.empty() || ends;
    if (!delta.call_parts.empty()) state.in_call = !delta.call_parts.back().ends;
    kept_bytes_ += BytesOf(delta, state.pending);
    pending_bytes_ -= std::min(pending_bytes_, BytesOf({}, state.pending));
    if (stream_) {
        Stream(index, delta, state.pending);
    } else {
        Keep(state, delta);
    }
    state.pending.clear();
}

void Answer::Stream(size_t index, const AnswerDelta& delta,
                    std::span<const engine::GeneratedToken> tokens) {
    const size_t bytes = BytesOf(delta, tokens);
    const std::optional<Usage> progress = ProgressOf(index);
    if (IsSoon(bytes)) return Format(index, delta, tokens, progress);
    FormatLater(bytes,
                [this, index, delta, progress, held = std::vector(tokens.begin(), tokens.end())] {
                    Format(index, delta, held, progress);
                });
}

void Answer::Format(size_t index, const AnswerDelta& delta,
                    std::span<const engine::GeneratedToken> tokens,
                    const std::optional<Usage>& progress) {
    std::string out;
    if (progress) dialect_->Progress(*progress);
    dialect_->Delta(static_cast<int>(index), delta, tokens, out);
    Write(std::move(out));
}

void Answer::StreamEnd(size_t index) {
    std::string out;
    if (const auto progress = ProgressOf(index)) dialect_->Progress(*progress);
    dialect_->EndChoice(static_cast<int>(index), choices_[index].choice.end, out);
    Write(std::move(out));
}

// Whether about `bytes` bytes are formatted at once: they are few, and nothing before them waits.
bool Answer::IsSoon(size_t bytes) const {
    return waiting_.empty() && bytes <= kMostFormattedInline;
}

// Formats on another thread, in the order of the calls. `work` runs without the lock.
void Answer::FormatLater(size_t bytes, std::function<void()> work) {
    waiting_.push_back(std::move(work));
    if (waiting_.size() > 1) return;
    later_(bytes, [self = shared_from_this()] {
        std::unique_lock lock(self->mutex_);
        for (; !self->waiting_.empty(); self->waiting_.pop_front()) {
            lock.unlock();
            self->waiting_.front()();
            lock.lock();
        }
    });
}

// Collects the delta until the answer is complete.
void Answer::Keep(State& state, const AnswerDelta& delta) {
    AnswerDelta& said = state.choice.said;
    said.content += delta.content;
    said.reasoning += delta.reasoning;
    said.tool_calls.insert(said.tool_calls.end(), delta.tool_calls.begin(), delta.tool_calls.end());
    said.call_parts.insert(said.call_parts.end(), delta.call_parts.begin(), delta.call_parts.end());
    if (!content_tokens_ || !delta.content.empty()) {
        state.choice.tokens.insert(state.choice.tokens.end(), state.pending.begin(),
                                   state.pending.end());
    }
    if (kept_bytes_ > held_bytes_ + kMostFormattedInline) Hold(kept_bytes_);
}

// Counts the answer's bytes. Returns false if the answer exceeds a limit; the answer then fails.
bool Answer::Hold(size_t bytes) {
    if (!record_.error.empty()) return false;
    held_bytes_ = std::max(held_bytes_, bytes);
    const auto refusal = exchange_->Hold(bytes);
    if (!refusal) return true;
    Fail({refusal->status, refusal->message, "", refusal->code});
    return false;
}

// Say sends the error when all choices have ended.
void Answer::Fail(const ApiError& error) {
    record_.error = error.message;
    failure_ = error;
    CancelAll();
}

void Answer::EndChoice(size_t index, std::string_view rest, const Result<engine::Ending>& ending) {
    const std::lock_guard lock(mutex_);
    State& state = choices_[index];
    if (state.over) return;
    state.over = true;
    if (index == 0 && slot_ != nullptr) {
        if (ending.ok()) slot_->SetCached(ending->cached_tokens);
        slot_.reset();  // before the client may save it
    }
    if (ending.ok()) {
        const bool concluded = state.concluded;  // even if its last token reached a limit
        EmitEcho(index);
        if (!rest.empty()) {
            if (demanded_[index]) state.written += rest;
            Add(index, state.parser.Push(rest));
        }
        Add(index, Close(index, *ending));
        if (const std::string held = state.stop.Flush(); !held.empty()) Give(index, {held, {}, {}});
        // After an echo, clients count the tokens; the end token counts too, although it has no
        // text.
        if (echo_logprobs_[index] && stream_ && !state.pending.empty()) {
            Stream(index, {}, state.pending);
        } else if (echo_logprobs_[index]) {
            std::ranges::copy(state.pending, std::back_inserter(state.choice.tokens));
        }
        const std::string& found = state.stop.found();
        const bool whole =
            concluded || !found.empty() || ending->finish == "eos" || ending->finish == "stop";
        const bool calls = state.called && !state.in_call;
        state.choice.end.finish = !whole ? "length" : calls ? "tool_calls" : "stop";
        state.choice.end.stop_text = found.empty() ? ending->stop_text : found;
        state.choice.end.context_full = ending->finish == "context";
        record_.usage.prompt_tokens += counts_prompt_[index] ? ending->prompt_tokens : 0;
        record_.usage.cached_tokens += counts_prompt_[index] ? ending->cached_tokens : 0;
        record_.usage.generated_tokens += ending->generated_tokens;
        record_.usage.queue_s = std::max(record_.usage.queue_s, ending->queue_s);
        record_.usage.first_token_s = std::max(record_.usage.first_token_s, ending->first_token_s);
        record_.usage.total_s = std::max(record_.usage.total_s, ending->total_s);
        record_.endings.push_back(*ending);
        if (stream_ && left_ == 1) {
            last_ = index;
        } else if (stream_ && IsSoon(0)) {
            StreamEnd(index);
        } else if (stream_) {
            FormatLater(0, [this, index] { StreamEnd(index); });
        }
    } else if (record_.error.empty()) {
        record_.cancelled = gone_ && ending.error().code == ErrorCode::kCancelled;
        Fail(ErrorOf(ending.error()));
    }
    if (--left_ == 0) Complete();
}

// Includes the request's size, because a response repeats its tools and instructions.
size_t Answer::BytesToFormat() const {
    return exchange_->request().body.size() + kept_bytes_;
}

void Answer::Complete() {
    const bool fails = !record_.error.empty();
    const bool is_long = !fails && (!stream_ || dialect_->repeats());
    const size_t bytes = is_long ? BytesToFormat() : 0;
    if (IsSoon(bytes) && (fails || !ends_slowly_)) return Say();
    FormatLater(bytes, [this] { Say(); });
}

// Sends the end of a stream, the complete answer, or the error. The observer is called before the
// client can see the end: it frees the key's place for the client's next request.
void Answer::Say() {
    std::string text;
    if (!stream_ && record_.error.empty()) {
        std::vector<Choice> choices;
        for (State& state : choices_) choices.push_back(std::move(state.choice));
        text = dialect_->Whole(choices, record_.usage);
        Hold(text.size());
    }
    const bool fails = !record_.error.empty();
    if (stream_ && fails) dialect_->Fail(failure_, text);
    if (stream_ && !fails) {
        StreamEnd(last_);
        dialect_->End(record_.usage, text);
    }
    NoteRecord(*exchange_, record_);
    Observe();
    if (stream_) {
        exchange_->EndWith(std::move(text));
    } else if (fails) {
        Refuse(failure_);
    } else {
        Headers headers = headers_;
        headers.emplace_back("Content-Type", "application/json");
        exchange_->Send(200, std::move(headers), std::move(text));
    }
}

void Answer::Observe() {
    if (const Observer observer = std::exchange(observer_, nullptr); observer) observer(record_);
}

}  // namespace weft::serve
